"""The steps that are missing, run on a database by its own dialect, under a lock; or written down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from fencepost.errors import FencepostError, LedgerRefused, LedgerUnavailable
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Dialect, Trouble
from fencepost.ledger.dialects.dialect import first_line
from fencepost.ledger.tables import Tables
from fencepost.ledger.urls import LedgerUrl
from fencepost.schema import running
from fencepost.schema.effects import effect_tables
from fencepost.schema.running import PATIENCE_S, Chain, StillLocked

_FOLDER = Path(__file__).parent
_NAMES = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "sqlite": "sqlite"}


def migrate(database: Database) -> tuple[str, ...]:
    """Run what is missing of the ledger, and of the tables of effects beside it, while nobody else does."""
    return take_steps(database, _chains(database.tables), what="tables of the ledger", command="fencepost migrate")


def take_steps(database: Database, chains: tuple[Chain, ...], *, what: str, command: str) -> tuple[str, ...]:
    """Run what is missing of `chains`. All or nothing, except on MySQL, where each statement commits.

    `what` and `command` are for whoever may not make tables: what could not be made, and the command that has --sql.
    """
    dialect = database.dialect
    engine = sa.create_engine(
        f"{_NAMES[dialect.name]}://", creator=lambda: dialect.dial(PATIENCE_S), poolclass=sa.NullPool
    )
    done: list[str] = []
    with _translated(dialect, what, command), engine.connect() as connection:
        _begin(connection)
        for chain in chains:  # always in this order, so that two who migrate do not wait for each other
            running.lock(connection, chain, database=database.url.database)
            done.extend(running.upgrade(connection, chain))
        connection.commit()
    return tuple(done)


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
    if dialect.trouble(error) is Trouble.REFUSED:
        return LedgerRefused(
            f"{dialect.product}: the {what} could not be made: {first_line(error)}. Let somebody who "
            f"may CREATE there run this command, or the script that `{command} --sql` prints"
        )
    return dialect.translated(error)
