"""Migrating a database to the tables that this version needs, and refusing one that does not have them.

::

    migrate(ledger)          run the missing steps that only add, under a lock: concurrent calls are safe
    migrate(…, contract=True)  also run those that remove something, unless a living node needs it
    migration_sql(url)       the same as a script, without connecting, for a user with more privileges
    check_schema(ledger)     refuse tables that this version cannot work with, with a message that says what to do
    ready_schema(ledger)     what a node does at its start: check; on SQLite also migrate

The tables that receive effects (`fencepost.schema.effects`) have their own steps and are migrated along: the ledger's
database always has them.

Steps only add until no node needs the old form (expand, then contract). So nodes of the previous version keep working
while the steps run, and can be restarted afterwards: the name of a step says which versions can work with the tables
that it leaves (`fencepost.schema.revisions`). The steps are in `versions/`; a released step is never changed. They form
one line: every step needs those before it, including one that contracts. So a version that adds a contracting step
works before that step was run, but a version that adds steps after it requires it first.
"""

from __future__ import annotations

from pathlib import Path

from fencepost.errors import LedgerRefused, SchemaMismatch
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.identity import identity
from fencepost.schema import effects
from fencepost.schema.revisions import (
    contracts,
    expanding_steps,
    is_readable,
    missing_steps,
    number,
    oldest_workable,
    steps_in,
)
from fencepost.sql.troubles import LACKS_TABLES, trouble_of

REVISIONS = steps_in(Path(__file__).parent / "versions")
OLDEST, NEWEST = oldest_workable(REVISIONS), REVISIONS[-1]  # the revisions that this version can work with
STEPS = (*REVISIONS, *effects.STEPS)  # all steps that `migrate` may run


def migrate(database: Database, *, contract: bool = False) -> tuple[str, ...]:
    """Run the missing steps and return their names; none if the tables are up to date.

    Steps that remove something are left for `contract`, which is refused while a living node needs what they remove.
    Tables of a newer version are left alone if this one can work with them, and refused if not.
    """
    _check_server(database)
    revision, of_effects = current_revision(database), effects_revision(database)
    _refuse_unreadable(database, revision)
    refuse_unreadable_effects(database, of_effects)
    steps: tuple[str, ...] = ()
    if not (
        is_done(revision, REVISIONS, contract=contract) and is_done(of_effects, effects.REVISIONS, contract=contract)
    ):
        from fencepost.ledger.migrations import running  # noqa: PLC0415 - Alembic is slow to import, rarely needed

        steps = running.migrate(database, contract=contract)
        identity(database)
    if (blocked := behind_contraction(current_revision(database), REVISIONS)) is not None:
        raise SchemaMismatch(f"{database.dialect.product}: {blocked}; then {_run(database, ' --contract')}")
    return steps


def is_done(revision: str | None, known: tuple[str, ...], *, contract: bool) -> bool:
    """Return whether tables of `revision` lack no step of `known` that may be run now."""
    missing = missing_steps(revision, known)
    return not (missing if contract or revision is None else expanding_steps(missing, known))


def behind_contraction(revision: str | None, known: tuple[str, ...]) -> str | None:
    """Return what to do first if a missing step that only adds comes after one that contracts; None otherwise.

    A contracting step with no step after it can wait: this version works without it.
    """
    missing = missing_steps(revision, known)
    waiting = missing[len(expanding_steps(missing, known)) :]
    if all(contracts(each, known) for each in waiting):
        return None
    return (
        f"step {number(waiting[-1]):04} needs step {number(waiting[0]):04}, which removes what older versions use: "
        "first upgrade every node and program to the release before this one"
    )


def migration_sql(url: str) -> str:
    """Return all steps as an SQL script for the database of `url`, without connecting to it."""
    from fencepost.ledger.migrations import running  # noqa: PLC0415 - as above

    return running.migration_sql(url)


def ready_schema(database: Database) -> None:
    """Check the tables. On SQLite, create or migrate them first, because no operator does it there."""
    if database.url.is_file:
        migrate(database)
    check_schema(database)


def check_schema(database: Database) -> None:
    """Raise `SchemaMismatch` if the tables, or `LedgerRefused` if the server, do not fit this version."""
    _check_server(database)
    revision = current_revision(database)
    if revision is None:
        raise SchemaMismatch(
            f"{database.dialect.product} has no tables of a ledger yet{_where(database)}; {_run(database)}"
        )
    _refuse_unreadable(database, revision)
    if revision in REVISIONS and REVISIONS.index(revision) < REVISIONS.index(OLDEST):
        raise SchemaMismatch(
            f"the ledger's tables in {database.dialect.product} are of revision {revision}, and this node needs "
            f"{OLDEST} or later; {_run(database)}"
        )
    if effects_revision(database) is None:
        raise SchemaMismatch(
            f"{database.dialect.product} has the ledger's tables, but not those of effects beside them; "
            f"{_run(database)}"
        )


def refuse_unreadable(database: Database, connection: LedgerConnection) -> None:
    """Raise `SchemaMismatch` if a newer version removed what this one needs. A node calls this after it has joined.

    A contracting step looks for older nodes first. So either it has seen this node, or this node sees its result.
    """
    table = database.tables.name("version")
    _refuse_unreadable(database, connection.read(lambda cursor: _revision(cursor, table)))


def current_revision(database: Database) -> str | None:
    """Return the revision of the ledger's tables; None if there are none."""
    return _revision_in(database, "version")


def effects_revision(database: Database) -> str | None:
    """Return the revision of the tables of effects; None if there are none."""
    return _revision_in(database, "effects_version")


def refuse_unreadable_effects(database: Database, revision: str | None) -> None:
    """Refuse tables of a newer version, unless their revision says that this version can work with them."""
    if revision is not None and not is_readable(revision, effects.REVISIONS):
        raise SchemaMismatch(
            f"the tables of effects in {database.dialect.product} were created by a newer Fencepost (revision "
            f"{revision}); this one knows up to {effects.NEWEST}: use the newer version here, or another database"
        )


def _revision_in(database: Database, table: str) -> str | None:
    try:
        return database.read(lambda cursor: _revision(cursor, database.tables.name(table)))
    except LedgerRefused as error:
        if trouble_of(error.__cause__) in LACKS_TABLES:
            return None
        raise


def _revision(cursor: Cursor, table: str) -> str | None:
    cursor.execute(f"SELECT version_num FROM {table}")  # noqa: S608 - a checked identifier
    row = cursor.fetchone()
    return None if row is None else str(row[0])


def _check_server(database: Database) -> None:
    objection = database.read(database.dialect.objection)
    if objection is not None:
        raise LedgerRefused(objection)


def _refuse_unreadable(database: Database, revision: str | None) -> None:
    if revision is not None and not is_readable(revision, REVISIONS):
        raise SchemaMismatch(
            f"this database was migrated by a newer Fencepost (revision {revision}); this node knows up to {NEWEST}: "
            f"deploy the newer version here, or use another database for this node ({database.dialect.product})"
        )


def _where(database: Database) -> str:
    return f" under prefix={database.tables.prefix}" if database.tables.prefix != "fencepost_" else ""


def _run(database: Database, option: str = "") -> str:
    masked = " (with the password in place of ***)" if database.url.store.password is not None else ""
    return f"run: fencepost migrate{option} --ledger '{database.url}'{masked}"
