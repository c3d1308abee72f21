"""Runs the missing steps on a database, under a lock, with its own dialect; or writes them as a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from fencepost.errors import FencepostError, LedgerRefused, LedgerUnavailable
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Dialect
from fencepost.ledger.migrations.contracting import refuse_while_needed
from fencepost.ledger.tables import Tables
from fencepost.ledger.urls import LedgerUrl
from fencepost.schema import running
from fencepost.schema.effects import LABEL, effect_tables
from fencepost.schema.running import PATIENCE_S, Chain, StillLocked
from fencepost.sql.troubles import REFUSALS, REPEATABLE, SLOW, first_line, trouble_of

MayContract = Callable[[sa.Connection, Chain, str], None]
"""Raises if a contracting step of a chain must not be run now."""

_RETRY_EVERY_S = 1.0  # lets the claims that waited for our lock pass
_RETRY_FOR_S = 600.0  # a long transaction, such as a backup, may hold a table for minutes
_LOCK_TIMEOUT_MS = 500  # for a table in use: all nodes wait meanwhile, and none should for longer than a second
_RETRIED = SLOW | REPEATABLE
_FOLDER = Path(__file__).parent
_NAMES = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "sqlite": "sqlite"}


def migrate(database: Database, *, contract: bool = False) -> tuple[str, ...]:
    """Run the missing steps of the ledger, and of the tables of effects beside it, under a lock.

    `contract`: also run those that remove something, unless a living node needs it.
    """
    return take_steps(
        database,
        _chains(database.tables),
        what="tables of the ledger",
        command="fencepost migrate",
        may_contract=_no_node_needs(database) if contract else None,
    )


def take_steps(
    database: Database,
    chains: tuple[Chain, ...],
    *,
    what: str,
    command: str,
    may_contract: MayContract | None = None,
) -> tuple[str, ...]:
    """Run the missing steps of `chains`: all or nothing, but for what commits by itself.

    That is each statement on MySQL, and on PostgreSQL an index that is built beside nodes that work. Every operation
    looks whether it is done already, so a call that was interrupted is repeated.

    `what` and `command` are for the message to a user who may not create tables: what could not be created, and the
    command that has --sql.
    """
    dialect, runtime, engine = database.dialect, database.runtime, engine_of(database)
    give_up_at = runtime.monotonic() + _RETRY_FOR_S
    with _translated(dialect, what, command):
        while True:
            try:
                return attempt(engine, database, chains, may_contract)
            except Overtaken:
                if runtime.monotonic() > give_up_at:
                    raise StillLocked from None
            except sa.exc.DBAPIError as error:
                if trouble_of(error.orig) not in _RETRIED or runtime.monotonic() > give_up_at:
                    raise
            runtime.sleep(_RETRY_EVERY_S)


def engine_of(database: Database) -> sa.Engine:
    """Return what makes a new connection for each attempt, and closes it: with it, its locks end."""
    dialect = database.dialect
    return sa.create_engine(
        f"{_NAMES[dialect.name]}://", creator=lambda: dialect.dial(PATIENCE_S), poolclass=sa.NullPool
    )


def attempt(
    engine: sa.Engine, database: Database, chains: tuple[Chain, ...], may_contract: MayContract | None
) -> tuple[str, ...]:
    """Run the missing steps, or raise `Overtaken`, or the error of a lock that did not come: then try again."""
    done: list[str] = []
    with engine.connect() as connection:
        _begin(connection)
        for chain in chains:  # always in this order, so that concurrent migrations do not deadlock
            _lock(connection, database, (chain,))
            guard = None if may_contract is None else partial(may_contract, connection, chain)
            aside = partial(_aside, connection, database, chain, chains[: chains.index(chain) + 1])
            done.extend(running.upgrade(connection, chain, guard, aside))
        connection.commit()
    return tuple(done)


class Overtaken(Exception):
    """Another process runs the steps outside of its transaction, or has done so while this one was outside of its."""


def _lock(connection: sa.Connection, database: Database, chains: tuple[Chain, ...]) -> None:
    for chain in chains:
        running.lock(connection, chain, database=database.url.database)
    _set_lock_timeout(connection)


@contextmanager
def _aside(
    connection: sa.Connection, database: Database, chain: Chain, locked: tuple[Chain, ...]
) -> Iterator[sa.Connection]:
    """Leave the transaction, on PostgreSQL, and begin another one: none of the locks of a step lasts for longer.

    Another process may run the steps meanwhile, but not be outside of its transaction, too: it would take the index
    that is being built here for one that was left unfinished, and drop it, however complete it is by then.
    """
    with running.lock_beside(connection, chain, database=database.url.database) as is_ours:
        if not is_ours:
            raise Overtaken
        revision = running.revision_of(connection, chain)
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql(f"SET lock_timeout = '{_LOCK_TIMEOUT_MS}ms'")
        yield connection
        _begin(connection)
        _lock(connection, database, locked)
    if running.revision_of(connection, chain) != revision:
        raise Overtaken


def _set_lock_timeout(connection: sa.Connection) -> None:
    """Limit the wait for a table, because all nodes queue up behind it. After a timeout, the steps are tried again.

    Otherwise a user's long transaction that has enqueued a run would block the cluster until it ends.
    """
    match connection.dialect.name:
        case "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_MS}ms'")
        case "mysql":
            connection.exec_driver_sql("SET SESSION lock_wait_timeout = 1")  # the least that MySQL allows


def _no_node_needs(database: Database) -> MayContract:
    """Return a check that refuses a step while a living node could not work with the tables that it leaves."""

    def check(connection: sa.Connection, chain: Chain, step: str) -> None:
        if connection.dialect.name == "postgresql":  # no node can join until the step is done
            connection.exec_driver_sql(f"LOCK TABLE {database.tables.name('node')} IN SHARE MODE")
        refuse_while_needed((database,), step, of_effects=chain.label == LABEL)

    return check


def migration_sql(url: str) -> str:
    """Return all steps as a script, for an empty database."""
    ledger_url = LedgerUrl.parse(url)
    return "\n".join(running.script(each, ledger_url.kind) for each in _chains(Tables.of(ledger_url)))


def known_revisions() -> tuple[str, ...]:
    """Return the steps in `versions/`, oldest first."""
    return running.known_revisions(_FOLDER)


def _chains(tables: Tables) -> tuple[Chain, ...]:
    ledger = Chain(_FOLDER, tables.prefix, tables.schema, tables.version)
    return ledger, effect_tables(tables.prefix, tables.schema).chain()


def _begin(connection: sa.Connection) -> None:
    """Begin explicitly, since connections of a dialect are in autocommit mode. On MySQL, DDL commits implicitly."""
    match connection.dialect.name:
        case "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        case "postgresql":
            connection.exec_driver_sql("BEGIN")


@contextmanager
def _translated(dialect: Dialect, what: str, command: str) -> Iterator[None]:
    try:
        yield
    except StillLocked as error:
        raise LedgerUnavailable(f"{dialect.product}: another process creates the {what} and does not end") from error
    except sa.exc.DBAPIError as error:
        raise _translate(dialect, error.orig, what, command) from error
    except dialect.errors as error:
        raise _translate(dialect, error, what, command) from error


def _translate(dialect: Dialect, error: BaseException | None, what: str, command: str) -> FencepostError:
    if not isinstance(error, dialect.errors):
        return LedgerUnavailable(f"{dialect.product}: {error}")
    if trouble_of(error) in REFUSALS:
        return LedgerRefused(
            f"{dialect.product}: the {what} could not be created: {first_line(error)}. Run this command, or the "
            f"script that `{command} --sql` prints, as a user that may CREATE there"
        )
    return dialect.translated(error)
