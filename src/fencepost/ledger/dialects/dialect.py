"""What the databases differ in, as far as all of the ledger needs to know. One subclass per kind of database.

SQLAlchemy writes most statements; the driver itself executes them, on one connection with explicit transactions.
So hot statements, written by hand, and all others share a connection and its one way of beginning and ending.
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
    """A DBAPI cursor, as the drivers have it. Rows are tuples."""

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
    """A DBAPI connection, in autocommit mode: transactions begin and end by statements of ours."""

    def cursor(self) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


class Dialect(ABC):
    """One database, its driver and its SQL. Holds no connection."""

    name: str  # "sqlite", "postgresql", "mysql" (which is MariaDB, too)
    errors: tuple[type[Exception], ...]  # all that the driver raises
    words: SqlWords
    mark: str  # how a parameter is written
    spelling: Spelling
    has_one_writer: bool = False
    has_hints: bool = False  # a commit can wake other processes (LISTEN and NOTIFY)
    has_procedures: bool = False  # ours stand in the database, and go along with COMMIT
    has_sequences: bool = False  # ids come from counters of their own, which a restore can leave behind the tables
    deletes_with_limit: bool = False
    counts_left_out: bool = False  # an INSERT also counts rows that it left out because they were there

    def __init__(self, url: LedgerUrl, runtime: Runtime) -> None:
        self.url = url
        self.runtime = runtime
        self.timeout_s = url.timeout_s
        self.kept_words: Any = None  # what `hot` has made for it
        self.silence_s = url.timeout_s  # how long a client may say nothing within a transaction; the server cuts it off

    @property
    @abstractmethod
    def product(self) -> str:
        """The database's kind and place, for messages: ``PostgreSQL at db1``."""

    @property
    @abstractmethod
    def now_sql(self) -> str:
        """The ledger's time in µs, as SQL. On SQLite a number, made anew at each reading."""

    def now(self) -> ColumnElement[int]:
        """Return the ledger's time in µs, to stand in a statement of SQLAlchemy."""
        return literal_column(self.now_sql, BigInteger())

    @abstractmethod
    def dial(self, timeout_s: float | None = None) -> DbapiConnection:
        """Connect. Connecting and every statement end after `timeout_s` (if not given: the URL's call_timeout)."""

    @abstractmethod
    def begin(self, connection: Any, cursor: Cursor) -> None:
        """Begin a transaction: READ COMMITTED, on SQLite as the only writer."""

    def refusal(self, error: Exception) -> str:
        """Say what an operator must mend, where its trouble is one of `REFUSALS`."""
        trouble = trouble_of(error)
        if trouble in LACKS_TABLES:
            return f"{self.product} lacks what the ledger needs ({first_line(error)}): run: fencepost migrate"
        return self.own_refusal(trouble, error) or f"{self.product} refuses: {first_line(error)}"

    def own_refusal(self, trouble: Trouble, error: Exception) -> str | None:
        """Return a sentence of this database's own about a refusal, if there is one."""
        return None

    @abstractmethod
    def json_table(self, alias: str, columns: Mapping[str, str]) -> str:
        """Return a table to select from, made of one parameter: the text of a JSON list of lists.

        `columns` are the names and kinds (``int``, ``float``, ``text``) of the inner lists' members, in their order.
        """

    @abstractmethod
    def unless_there(self, table: str, key: str, where: str = "") -> str:
        """Return the end of an INSERT that leaves out rows whose `key`, a column, is there already.

        `where` is what the unique index of that column is limited to, if it is. A row that is there by another key is
        an error; but on MySQL, which cannot tell the two apart, it is left out as well.
        """

    def translated(self, error: Exception) -> FencepostError:
        """Put a failure of the driver into words that tell an operator enough, and nobody a secret."""
        trouble = trouble_of(error)
        if trouble in REFUSALS:
            return LedgerRefused(self.refusal(error))
        if trouble in SLOW:
            return LedgerUnavailable(f"{self.product} did not answer within {spelled(round(self.timeout_s, 3))}")
        return LedgerUnavailable(f"{self.product}: {first_line(error)}")

    @abstractmethod
    def objection(self, cursor: Cursor) -> str | None:
        """Say why this server cannot keep a ledger: too old, or not to be written to; None if it can."""

    @abstractmethod
    def insert_row(self, cursor: Cursor, table: Table, values: Mapping[str, Any]) -> bool:
        """Insert a row; False if some unique key has it already, and nothing was changed."""

    @abstractmethod
    def insert_new(self, cursor: Cursor, sql: str, parameters: Parameters) -> int | None:
        """Execute the INSERT of one run and return its id; None if its origin key is there already."""

    @abstractmethod
    def evidence(self, cursor: Cursor) -> dict[str, str]:
        """Return what tells this database from one that was restored from a dump, or copied.

        Nothing that a failover, a restart, VACUUM FULL or a change of the ledger's tables alters. What this user may
        not see is left out.
        """

    @abstractmethod
    def top_id(self, cursor: Cursor) -> int | None:
        """Return the last id that was given to a run; None where this user may not see it."""

    @abstractmethod
    def raise_ids(self, cursor: Cursor, to: int) -> None:
        """Give no id up to `to` to a run any more, in the transaction of `cursor`."""

    def table(self, name: str) -> str:
        """Return the full name of one of the ledger's tables."""
        place = f"{self.url.schema}." if self.url.schema else ""
        return f"{place}{self.url.prefix}{name}"

    def insert_all_new(self, cursor: Cursor, sql: str, rows: Sequence[Sequence[Any]]) -> list[int | None]:
        """Do `insert_new` for each of `rows`."""
        return [self.insert_new(cursor, sql, row) for row in rows]

    def big(self, sql: str) -> str:
        """Return `sql`, a parameter, as a number of eight bytes where the database has to be told."""
        return sql

    def now_us(self, cursor: Cursor) -> int:
        """Ask what time it is in the ledger."""
        cursor.execute(f"SELECT {self.now_sql}")
        return int(cursor.fetchone()[0])

    def hang_up(self, connection: DbapiConnection, cursor: Cursor | None) -> None:
        """Close a connection, whatever its cursor is at."""
        connection.close()

    def is_stale(self, connection: Any) -> bool:
        """Whether an idle connection leads nowhere any more, where that can be seen without asking the server."""
        return False

    def forget(self, opened: Sequence[Closable], *, in_use: int) -> None:
        """Come to terms, in a forked child, with connections that belong to the parent: keep them, closing none."""
        leave_to_parent(opened)

    def execute(self, cursor: Cursor, statement: ClauseElement) -> Cursor:
        """Execute what SQLAlchemy has put together, on the driver's own cursor."""
        sql, parameters = self.written(statement)
        cursor.execute(sql, parameters)
        return cursor

    def written(self, statement: ClauseElement) -> tuple[str, Parameters]:
        """Return a statement's SQL and its parameters in the driver's manner."""
        compiled = statement.compile(dialect=self.words, compile_kwargs={"render_postcompile": True})
        values = dict(compiled.params or {})
        order: list[str] | None = compiled.positiontup  # type: ignore[attr-defined]
        return str(compiled), values if order is None else tuple(values[name] for name in order)


ORIGIN_KEY = "origin_key", "origin_key IS NOT NULL"  # the one key of runs that may be there already
