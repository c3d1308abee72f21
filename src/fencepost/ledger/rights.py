"""Checks privileges in the database whose lack would otherwise show only when a run commits."""

from __future__ import annotations

from fencepost.errors import LedgerRefused
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.schema.effects import effect_tables

CHECK_RUN, CHECK_FENCE = "check_run", "check_fence"


def check_rights(database: Database) -> None:
    """Raise `LedgerRefused` if the procedures that are called with COMMIT may not be executed. Only PostgreSQL has any.

    PostgreSQL lets every user call a new procedure, unless that was revoked, as on hardened servers.
    """
    if not database.dialect.has_procedures:
        return
    effects = effect_tables(database.tables.prefix, database.tables.schema)
    names = (database.tables.name(CHECK_RUN), effects.name(CHECK_FENCE))
    denied = database.read(lambda cursor: [name for name in names if not _may_call(cursor, name)])
    if denied:
        user = database.url.store.user or "the user of this URL"
        grants = "; ".join(f"GRANT EXECUTE ON PROCEDURE {name} TO {user}" for name in denied)
        raise LedgerRefused(
            f"{database.dialect.product}: {user} may not EXECUTE {' and '.join(denied)}, and without that every run "
            f"fails when it commits; let the owner run: {grants}"
        )


def _may_call(cursor: Cursor, name: str) -> bool:
    cursor.execute("SELECT has_function_privilege(to_regproc(%s), 'EXECUTE')", (name,))
    return bool(cursor.fetchone()[0])
