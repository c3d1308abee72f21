"""The steps that are missing, run on a database by its own dialect, under a lock; or written down."""

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
"""Raises if a step of a chain, which takes something away, must not be taken now."""

_WAITS_FOR_S = 2  # for a table that somebody uses; less than a call of a node may take, and than a ttl
_GIVES_WAY_S = 1.0
_GIVES_WAY_FOR_S = 600.0
_IN_THE_WAY = SLOW | REPEATABLE
_FOLDER = Path(__file__).parent
_NAMES = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "sqlite": "sqlite"}


def migrate(database: Database, *, contract: bool = False) -> tuple[str, ...]:
    """Run what is missing of the ledger, and of the tables of effects beside it, while nobody else does.

    `contract`: also what takes something away, unless a node lives that needs it.
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
    """Run what is missing of `chains`. All or nothing, except on MySQL, where each statement commits.

    `what` and `command` are for whoever may not make tables: what could not be made, and the command that has --sql.
    """
    dialect, runtime = database.dialect, database.runtime
    engine = sa.create_engine(
        f"{_NAMES[dialect.name]}://", creator=lambda: dialect.dial(PATIENCE_S), poolclass=sa.NullPool
    )
    give_up_at = runtime.monotonic() + _GIVES_WAY_FOR_S
    with _translated(dialect, what, command):
        while True:
            try:
                return _taken(engine, database, chains, may_contract)
            except sa.exc.DBAPIError as error:
                if trouble_of(error.orig) not in _IN_THE_WAY or runtime.monotonic() > give_up_at:
                    raise
            runtime.sleep(_GIVES_WAY_S)


def _taken(
    engine: sa.Engine, database: Database, chains: tuple[Chain, ...], may_contract: MayContract | None
) -> tuple[str, ...]:
    done: list[str] = []
    with engine.connect() as connection:
        _begin(connection)
        for chain in chains:  # always in this order, so that two who migrate do not wait for each other
            running.lock(connection, chain, database=database.url.database)
            _give_way(connection)
            guard = None if may_contract is None else partial(may_contract, connection, chain)
            done.extend(running.upgrade(connection, chain, guard))
        connection.commit()
    return tuple(done)


def _give_way(connection: sa.Connection) -> None:
    """Wait for a table only for a moment: behind us wait all nodes. What was done is undone, or done, and tried again.

    A long transaction of a user's, with an enqueued run in it, would else hold up the cluster until it ends.
    """
    match connection.dialect.name:
        case "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_WAITS_FOR_S}s'")
        case "mysql":
            connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {_WAITS_FOR_S}")


def _no_node_needs(database: Database) -> MayContract:
    """Return what refuses a step while a node lives that could not work with the tables it leaves behind."""

    def check(connection: sa.Connection, chain: Chain, step: str) -> None:
        if connection.dialect.name == "postgresql":  # nobody joins until the step is done
            connection.exec_driver_sql(f"LOCK TABLE {database.tables.name('node')} IN SHARE MODE")
        refuse_while_needed((database,), step, of_effects=chain.label == LABEL)

    return check


def migration_sql(url: str) -> str:
    """Write down all steps, from nothing."""
    ledger_url = LedgerUrl.parse(url)
    return "\n".join(running.script(each, ledger_url.kind) for each in _chains(Tables.of(ledger_url)))


def known_revisions() -> tuple[str, ...]:
    """Return the steps in `versions/`, oldest first."""
    return running.known_revisions(_FOLDER)


def _chains(tables: Tables) -> tuple[Chain, ...]:
    ledger = Chain(_FOLDER, tables.prefix, tables.schema, tables.version)
    return ledger, effect_tables(tables.prefix, tables.schema).chain()


def _begin(connection: sa.Connection) -> None:
    """Begin by a statement: connections of a dialect leave that to us. MySQL would end it at the first table made."""
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
        raise LedgerUnavailable(f"{dialect.product}: somebody else makes the {what} and does not end") from error
    except sa.exc.DBAPIError as error:
        raise _told(dialect, error.orig, what, command) from error
    except dialect.errors as error:
        raise _told(dialect, error, what, command) from error


def _told(dialect: Dialect, error: BaseException | None, what: str, command: str) -> FencepostError:
    if not isinstance(error, dialect.errors):
        return LedgerUnavailable(f"{dialect.product}: {error}")
    if trouble_of(error) in REFUSALS:
        return LedgerRefused(
            f"{dialect.product}: the {what} could not be made: {first_line(error)}. Let somebody who "
            f"may CREATE there run this command, or the script that `{command} --sql` prints"
        )
    return dialect.translated(error)
