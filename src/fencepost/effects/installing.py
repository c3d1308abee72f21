"""Creates the tables of effects in a database, or migrates them to this version. For operators; under a lock.

Nothing else creates them, except that the ledger's own database gets them from `fencepost migrate`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.core.runtime import Runtime
from fencepost.errors import LedgerRefused, SchemaMismatch
from fencepost.ledger.database import Database
from fencepost.ledger.dialects.sqlite import SqliteDialect
from fencepost.ledger.migrations import behind_contraction, effects_revision, is_done, refuse_unreadable_effects
from fencepost.ledger.migrations.contracting import refuse_while_needed
from fencepost.ledger.urls import LedgerUrl
from fencepost.schema.effects import REVISIONS, EffectTables, effect_tables

INSTALL = "fencepost effects install"


def open_database(url: str, runtime: Runtime) -> Database:
    """Return the database of `url`, which has the form of a ledger URL, without connecting."""
    database = Database(LedgerUrl.parse(url), runtime)
    if isinstance(database.dialect, SqliteDialect):
        database.dialect.keeps_journal_mode = True
    return database


def tables_of(database: Database) -> EffectTables:
    """Return the tables of effects with the prefix and schema of the URL."""
    return effect_tables(database.tables.prefix, database.tables.schema)


def install(database: Database, *, contract_for: Sequence[Database] = ()) -> tuple[str, ...]:
    """Run the missing steps and return their names. Two concurrent calls are safe.

    Steps that remove something run only if `contract_for` names the ledgers whose runs write here. These know which
    nodes are alive, and the call is refused while a living node needs what is removed.
    """
    _check_server(database)
    revision = effects_revision(database)
    refuse_unreadable_effects(database, revision)
    steps: tuple[str, ...] = ()
    if not is_done(revision, REVISIONS, contract=bool(contract_for)):
        from fencepost.ledger.migrations.running import take_steps  # noqa: PLC0415 - Alembic is slow to import

        def may_contract(_connection: object, _chain: object, step: str) -> None:
            refuse_while_needed(contract_for, step, of_effects=True)

        steps = take_steps(
            database,
            (tables_of(database).chain(),),
            what="tables of effects",
            command=INSTALL,
            may_contract=may_contract if contract_for else None,
        )
    if (blocked := behind_contraction(effects_revision(database), REVISIONS)) is not None:
        raise SchemaMismatch(
            f"{database.dialect.product}: {blocked}; then run: {how_to_install(database)} --contract --ledger URL"
        )
    return steps


def install_sql(url: str) -> str:
    """Return all steps as a script for the database of `url`, without connecting to it."""
    from fencepost.schema.running import script  # noqa: PLC0415 - as above

    place = LedgerUrl.parse(url)
    return script(effect_tables(place.prefix, place.schema).chain(), place.kind)


def how_to_install(database: Database) -> str:
    """Return the command that creates the tables, without a password."""
    masked = " (with the password in place of ***)" if database.url.store.password is not None else ""
    return f"{INSTALL} '{database.url}'{masked}"


def _check_server(database: Database) -> None:
    objection = database.read(database.dialect.objection)
    if objection is not None:
        raise LedgerRefused(objection)
