"""The differences between databases that the whole ledger needs to know. There is one subclass per kind of database.

SQLAlchemy builds most statements. The driver itself executes them, on one connection with explicit transactions. So
they share that connection and its transactions with the statements of the frequent operations, which are written by
hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import BigInteger, ColumnElement, Table, literal_column
from sqlalchemy.engine import Dialect as SqlWords
from sqlalchemy.sql import ClauseElement

from fencepost.core.duration import spelled
from fencepost.core.runtime import Runtime
from fencepost.errors import FencepostError, LedgerRefused, LedgerUnavailable
from fencepost.ledger.urls import LedgerUrl
from fencepost.sql.forked_sqlite import Closable
from fencepost.sql.parents import leave_to_parent
from fencepost.sql.spelling import Spelling
from fencepost.sql.troubles import LACKS_TABLES, REFUSALS, SLOW, Trouble, first_line, trouble_of

Row = tuple[Any, ...]
Parameters = Sequence[Any] | Mapping[str, Any]


class Cursor(Protocol):
    """A DBAPI cursor as the drivers provide it. Rows are tuples."""

    @property
    def rowcount(self) -> int: ...
    @property
    def lastrowid(self) -> Any: ...
    @property
    def description(self) -> Any: ...
    def execute(self, sql: Any, parameters: Any = ..., /) -> Any: ...
    def executemany(self, sql: Any, parameters: Any, /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> Any: ...


class DbapiConnection(Protocol):
    """A DBAPI connection in autocommit mode: explicit statements begin and end transactions."""

    def cursor(self) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


class Dialect(ABC):
    """A kind of database, its driver and its SQL. Holds no connection."""

    name: str  # "sqlite", "postgresql", "mysql" (also for MariaDB)
    errors: tuple[type[Exception], ...]  # the exceptions that the driver raises
    words: SqlWords
    mark: str  # the placeholder of a parameter
    spelling: Spelling
    has_one_writer: bool = False
    has_hints: bool = False  # a commit can wake other processes (LISTEN and NOTIFY)
    has_procedures: bool = False  # the database holds stored procedures of the ledger, called together with COMMIT
    has_sequences: bool = False  # ids come from separate sequences, which can be behind the tables after a restore
    deletes_with_limit: bool = False
    weighs_sorting: bool = True  # the query planner compares sorting all rows of one index with the order of another
    counts_left_out: bool = False  # the row count of an INSERT includes rows that it left out as duplicates

    def __init__(self, url: LedgerUrl, runtime: Runtime) -> None:
        self.url = url
        self.runtime = runtime
        self.timeout_s = url.timeout_s
        self.kept_words: Any = None  # the statements for this dialect, cached by `statements_for`
        self.silence_s = url.timeout_s  # the server disconnects a client that is idle in a transaction for longer

    @property
    @abstractmethod
    def product(self) -> str:
        """The kind and place of the database, for messages: ``PostgreSQL at db1``."""

    @property
    @abstractmethod
    def now_sql(self) -> str:
        """The ledger's time in µs, as SQL. On SQLite this is a number, which is read again at each access."""

    def now(self) -> ColumnElement[int]:
        """Return the ledger's time in µs as an expression for SQLAlchemy."""
        return literal_column(self.now_sql, BigInteger())

    @abstractmethod
    def dial(self, timeout_s: float | None = None) -> DbapiConnection:
        """Connect. Connecting and every statement time out after `timeout_s` (default: the URL's call_timeout)."""

    @abstractmethod
    def begin(self, connection: Any, cursor: Cursor) -> None:
        """Begin a transaction: READ COMMITTED; on SQLite, as the only writer."""

    def refusal(self, error: Exception) -> str:
        """Return a message that says what an operator has to fix, for an error that is one of `REFUSALS`."""
        trouble = trouble_of(error)
        if trouble in LACKS_TABLES:
            return f"{self.product} lacks what the ledger needs ({first_line(error)}): run: fencepost migrate"
        return self.own_refusal(trouble, error) or f"{self.product} refuses: {first_line(error)}"

    def own_refusal(self, trouble: Trouble, error: Exception) -> str | None:
        """Return the message that this database has for a refusal, or None."""
        return None

    @abstractmethod
    def json_table(self, alias: str, columns: Mapping[str, str]) -> str:
        """Return a table expression for one parameter: the text of a JSON list of lists.

        `columns` are the names and kinds (``int``, ``float``, ``text``) of the members of the inner lists, in order.
        """

    @abstractmethod
    def unless_there(self, table: str, key: str, where: str = "") -> str:
        """Return the end of an INSERT that leaves out rows whose `key`, a column, already exists.

        `where` is the condition of the unique index on that column, if it is a partial index. A row that violates
        another key is an error; but MySQL cannot distinguish the two, and leaves out that row as well.
        """

    def translated(self, error: Exception) -> FencepostError:
        """Translate an error of the driver. The message has what an operator needs, and no secrets."""
        trouble = trouble_of(error)
        if trouble in REFUSALS:
            return LedgerRefused(self.refusal(error))
        if trouble in SLOW:
            return LedgerUnavailable(f"{self.product} did not answer within {spelled(round(self.timeout_s, 3))}")
        return LedgerUnavailable(f"{self.product}: {first_line(error)}")

    @abstractmethod
    def objection(self, cursor: Cursor) -> str | None:
        """Say why this server cannot hold a ledger, such as an old version or read-only access; None if it can."""

    @abstractmethod
    def insert_row(self, cursor: Cursor, table: Table, values: Mapping[str, Any]) -> bool:
        """Insert a row; return False, and change nothing, if a row with the same unique key exists."""

    @abstractmethod
    def insert_new(self, cursor: Cursor, sql: str, parameters: Parameters) -> int | None:
        """Execute the INSERT of one run and return its id; None if its origin key already exists."""

    @abstractmethod
    def evidence(self, cursor: Cursor) -> dict[str, str]:
        """Return values that distinguish this database from a copy of it, or one that was restored from a dump.

        A failover, a restart, VACUUM FULL or a change of the ledger's tables does not change them. Values that this
        user may not see are left out.
        """

    @abstractmethod
    def top_id(self, cursor: Cursor) -> int | None:
        """Return the last id that was assigned to a run; None if this user may not see it."""

    @abstractmethod
    def raise_ids(self, cursor: Cursor, to: int) -> None:
        """Assign no id up to `to` to a run from now on, in the transaction of `cursor`."""

    def table(self, name: str) -> str:
        """Return the qualified name of one of the ledger's tables."""
        place = f"{self.url.schema}." if self.url.schema else ""
        return f"{place}{self.url.prefix}{name}"

    def insert_all_new(self, cursor: Cursor, sql: str, rows: Sequence[Sequence[Any]]) -> list[int | None]:
        """Call `insert_new` for each of `rows`."""
        return [self.insert_new(cursor, sql, row) for row in rows]

    def insert_absent(self, cursor: Cursor, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows of numbers and bytes in one statement, but none whose key exists. Names are quoted already."""
        row = f"({', '.join([self.mark] * len(columns))})"
        into = f"INTO {table} ({', '.join(columns)}) VALUES {', '.join([row] * len(rows))}"
        cursor.execute(self.spelling.insert_if_absent(into), [value for row in rows for value in row])

    def big(self, sql: str) -> str:
        """Return `sql`, a parameter, with a cast to an eight-byte integer if the database needs one."""
        return sql

    def now_us(self, cursor: Cursor) -> int:
        """Return the current time of the ledger."""
        cursor.execute(f"SELECT {self.now_sql}")
        return int(cursor.fetchone()[0])

    def hang_up(self, connection: DbapiConnection, cursor: Cursor | None) -> None:
        """Close a connection, whatever the state of its cursor."""
        connection.close()

    def is_stale(self, connection: Any) -> bool:
        """Whether an idle connection is known to be broken, as far as that can be seen without asking the server."""
        return False

    def forget(self, opened: Sequence[Closable], *, in_use: int) -> None:
        """In a forked child, keep the connections that belong to the parent without closing any of them."""
        leave_to_parent(opened)

    def execute(self, cursor: Cursor, statement: ClauseElement) -> Cursor:
        """Execute a statement built with SQLAlchemy on the driver's cursor."""
        sql, parameters = self.written(statement)
        cursor.execute(sql, parameters)
        return cursor

    def written(self, statement: ClauseElement) -> tuple[str, Parameters]:
        """Return the SQL of a statement, and its parameters in the form that the driver expects."""
        compiled = statement.compile(dialect=self.words, compile_kwargs={"render_postcompile": True})
        values = dict(compiled.params or {})
        order: list[str] | None = compiled.positiontup  # type: ignore[attr-defined]
        return str(compiled), values if order is None else tuple(values[name] for name in order)


ORIGIN_KEY = "origin_key", "origin_key IS NOT NULL"  # the only unique key of `run` that an INSERT may find taken
