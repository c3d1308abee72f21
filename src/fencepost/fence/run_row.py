"""The row of a run as a fence, and how each database compares it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, OperationalError

from fencepost.core.runtime import Runtime
from fencepost.fence.sqlite_limit import LIMIT_S, SqliteLimit


class RunRow(NamedTuple):
    """Which row has to stay as it is: `table` is a full name of checked identifiers, `what` names the run."""

    table: str
    run_id: int
    token: int
    what: str

    @property
    def query(self) -> str:
        """Finds the row if it is still ours."""
        ours = "id = :run_id AND token = :token AND state = 'running'"
        return f"SELECT 1 FROM {self.table} WHERE {ours}"  # noqa: S608 - made of checked identifiers

    @property
    def values(self) -> dict[str, int]:
        """The parameters of `query`."""
        return {"run_id": self.run_id, "token": self.token}


@dataclass(frozen=True, slots=True)
class Terms:
    """What a transaction has to keep to.

    `check_trust` raises if the run may not go on. `finish`, if there is one, ends the run inside the transaction and
    says whether it was ours. `refused` puts on record that a write was refused.
    """

    runtime: Runtime
    isolation: str
    ttl_s: float
    check_trust: Callable[[], None]
    refused: Callable[[str], None]
    finish: Callable[[Connection], bool] | None = None
    sqlite_limit_s: float = LIMIT_S


class Database(Protocol):
    """What differs between databases."""

    def prepared(self, connection: Connection, terms: Terms) -> Connection: ...
    def begin(self, connection: Connection, row: RunRow, terms: Terms) -> bool: ...
    def reads(self, connection: Connection, row: RunRow) -> bool: ...
    def check(self, connection: Connection, row: RunRow) -> bool: ...
    def ends_in_time(self) -> bool: ...
    def end(self, connection: Connection) -> None: ...
    def is_conflict(self, error: Exception) -> bool: ...
    def lacks_table(self, error: DBAPIError) -> bool: ...


class _Server:
    """What PostgreSQL and MySQL have in common."""

    share = "FOR SHARE"

    def prepared(self, connection: Connection, terms: Terms) -> Connection:
        return connection.execution_options(isolation_level=terms.isolation.upper())

    def check(self, connection: Connection, row: RunRow) -> bool:
        return _finds(connection, f"{row.query} {self.share}", row)

    def reads(self, connection: Connection, row: RunRow) -> bool:
        return _finds(connection, row.query, row)

    def ends_in_time(self) -> bool:
        return True

    def end(self, connection: Connection) -> None:
        """Leave the connection as it was."""


class _Postgres(_Server):
    def begin(self, connection: Connection, row: RunRow, terms: Terms) -> bool:
        """Bound the silence, and look at the row, in one round trip."""
        bounded = "SELECT set_config('idle_in_transaction_session_timeout', :idle_ms, true)"
        values = {"idle_ms": str(max(round(terms.ttl_s * 1000), 1)), **row.values}
        return bool(connection.execute(text(f"{bounded}, EXISTS ({row.query})"), values).one()[1])

    def is_conflict(self, error: Exception) -> bool:
        return getattr(getattr(error, "orig", error), "sqlstate", None) == "40001"

    def lacks_table(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) in ("42P01", "3F000")


class _Mysql(_Server):
    share = "LOCK IN SHARE MODE"  # MariaDB knows no other words for it

    def begin(self, connection: Connection, row: RunRow, terms: Terms) -> bool:
        silence_s = max(math.ceil(terms.ttl_s), 1)
        connection.execute(text(f"SET SESSION {self._silence(connection)} = {silence_s}"))
        # Where every look takes a lock, looking now would make a successor wait for the whole transaction.
        return terms.isolation == "serializable" or self.reads(connection, row)

    def end(self, connection: Connection) -> None:
        if connection.invalidated or connection.closed:
            return
        with suppress(DBAPIError):  # a connection that is broken keeps nothing
            connection.execute(text(f"SET SESSION {self._silence(connection)} = DEFAULT"))
            connection.rollback()

    def is_conflict(self, error: Exception) -> bool:  # a locking read sees the newest row
        return False

    def lacks_table(self, error: DBAPIError) -> bool:
        return _number_of(error) in (1146, 1049)

    @staticmethod
    def _silence(connection: Connection) -> str:
        is_mariadb = bool(getattr(connection.dialect, "is_mariadb", False))
        return "idle_transaction_timeout" if is_mariadb else "wait_timeout"


class _Sqlite:
    def __init__(self) -> None:
        self._limit: SqliteLimit | None = None

    def prepared(self, connection: Connection, terms: Terms) -> Connection:  # there is one isolation
        return connection

    def begin(self, connection: Connection, row: RunRow, terms: Terms) -> bool:
        """Become the writer at once: then nobody can take the run away until we end."""
        driver = cast("Any", connection.connection.dbapi_connection)
        if driver.in_transaction:
            connection.exec_driver_sql(f"UPDATE {row.table} SET token = token WHERE 1 = 0")  # noqa: S608 - see above
        else:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        self._limit = SqliteLimit(terms.runtime, driver, limit_s=terms.sqlite_limit_s)
        return self.check(connection, row)

    def reads(self, connection: Connection, row: RunRow) -> bool:
        return _finds(connection, row.query, row)

    check = reads

    def ends_in_time(self) -> bool:
        return self._limit is None or self._limit.end()

    def end(self, connection: Connection) -> None:  # the limit has its own
        if self._limit is not None:
            self._limit.lift()

    def is_conflict(self, error: Exception) -> bool:  # we are the one writer
        return False

    def lacks_table(self, error: DBAPIError) -> bool:
        return isinstance(error, OperationalError) and "no such table" in str(error.orig)


def database_of(source: object) -> Database:
    if not isinstance(source, Engine | Connection):
        raise TypeError(
            f"run.transaction() takes a SQLAlchemy Engine or Connection to the ledger's database, not "
            f"{type(source).__module__}.{type(source).__name__}"
        )
    match source.dialect.name:
        case "postgresql":
            return _Postgres()
        case "mysql" | "mariadb":
            return _Mysql()
        case "sqlite":
            return _Sqlite()
    raise TypeError(f"a ledger cannot be kept in {source.dialect.name}, so a transaction there is not fenced by it")


def _finds(connection: Connection, query: str, row: RunRow) -> bool:
    return connection.execute(text(query), row.values).first() is not None


def _number_of(error: DBAPIError) -> int | None:
    arguments = getattr(error.orig, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else None
