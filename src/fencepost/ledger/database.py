"""The database that holds a ledger: its tables, its dialect, and connections to it. Connects on first use."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from sqlalchemy.sql import ClauseElement

from fencepost.core.duration import spelled
from fencepost.core.runtime import Runtime
from fencepost.errors import ConfigurationError, LedgerUnavailable
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects import Cursor, Dialect, Row, dialect_for
from fencepost.ledger.tables import Tables
from fencepost.ledger.urls import LedgerUrl
from fencepost.sql.forked_sqlite import FORKED_SQLITE, Closable
from fencepost.sql.held_files import holder_of
from fencepost.sql.pool import Pool
from fencepost.sql.turns import Turns

if TYPE_CHECKING:
    from fencepost.ledger.naming import Naming

T = TypeVar("T")

POOL_SIZE = 5  # loops have connections of their own; these are for what people and jobs ask
BESIDE = 2  # connections of `Database.beside`


def _busy(what: str) -> Callable[[float], LedgerUnavailable]:
    """Return a function that creates the error for a caller whose wait for `what` timed out."""
    return lambda waited_s: LedgerUnavailable(f"{what} was busy for {spelled(round(waited_s, 3))}: nothing was done")


class Database:
    """The database that holds a ledger. Its repr shows no password."""

    def __init__(self, url: LedgerUrl, runtime: Runtime) -> None:
        self.url = url
        self.runtime = runtime
        self.tables = Tables.of(url)
        self.dialect: Dialect = dialect_for(url, runtime)
        self._writer = (
            Turns(runtime, limit=1, busy=_busy(self.dialect.product)) if self.dialect.has_one_writer else None
        )
        self._connections: WeakSet[LedgerConnection] = WeakSet()
        self.pool = self._pool(POOL_SIZE)
        # For reads while a transaction of the caller holds locks: every connection of `pool` may be waiting for these.
        self.beside = self._pool(BESIDE)
        self.known_identity: str | None = None
        self.known_naming: tuple[float, Naming] | None = None  # valid until (monotonic), and the naming
        if url.is_file:
            FORKED_SQLITE.join(self.open_now)
        runtime.after_fork(self, self._forget)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def connect(self, name: str) -> LedgerConnection:
        """Return a new connection for one loop. It is opened on first use."""
        connection = LedgerConnection(name, self.dialect, writer=self._writer)
        self._connections.add(connection)
        return connection

    def _pool(self, limit: int) -> Pool[LedgerConnection]:
        """Return a pool of connections for the threads of users. A connection serves one call at a time."""
        busy = _busy("every connection to the ledger")
        return Pool(
            self.runtime,
            lambda _left_s: self.connect("pool"),
            close=LedgerConnection.rest,
            limit=limit,
            busy=busy,
            unused_s=inf,
        )

    def bound_silence(self, limit_s: float) -> None:
        """Have the server disconnect clients that are idle in a transaction for `limit_s`, such as a paused process.

        Until then such a client keeps its locks. Applies to connections that are opened from now on; the limit never
        exceeds the timeout of a call.
        """
        self.dialect.silence_s = min(limit_s, self.dialect.timeout_s)

    @property
    def held_by(self) -> str | None:
        """The holder of the SQLite file, if this context has begun a transaction on it; None if not, or on a server."""
        return None if self._writer is None else holder_of(str(self.url.path))

    def write(self, work: Callable[[Cursor], T]) -> T:
        """Call `work` in a transaction on a pooled connection; see `LedgerConnection.write`."""
        if (holder := self.held_by) is not None:
            raise ConfigurationError(
                f"a transaction of {holder} is open, and locks the SQLite file of the ledger: to enqueue inside of it, "
                "pass it on, as in enqueue(…, tx=tx); or make this call after its block"
            )
        with self.pool.borrow(self.dialect.timeout_s) as connection:
            return connection.write(work)

    def read(self, work: Callable[[Cursor], T]) -> T:
        """Call `work`, which changes nothing, on a pooled connection; see `LedgerConnection.read`."""
        with self.pool.borrow(self.dialect.timeout_s) as connection:
            return connection.read(work)

    def read_beside(self, work: Callable[[Cursor], T]) -> T:
        """Call `work`, which changes nothing and waits for no lock, while a transaction of the caller is open."""
        with self.beside.borrow(self.dialect.timeout_s) as connection:
            return connection.read(work)

    def rows(self, cursor: Cursor, statement: ClauseElement) -> list[Row]:
        """Execute a statement built with SQLAlchemy, and fetch all rows."""
        return list(self.dialect.execute(cursor, statement).fetchall())

    def change(self, cursor: Cursor, statement: ClauseElement) -> int:
        """Execute a statement built with SQLAlchemy, and return the number of rows that matched."""
        return self.dialect.execute(cursor, statement).rowcount

    def now_us(self, connection: LedgerConnection | None = None) -> int:
        """Return the current time of the ledger."""
        return (connection or self).read(self.dialect.now_us)

    def close(self) -> None:
        """Close the pooled connections. Loops close their own connections. A later use opens them again."""
        self.pool.drop_idle()
        self.beside.drop_idle()

    def _forget(self) -> None:
        """In a forked child, drop the connections of the parent without closing them."""
        inherited, in_use = self.open_now()
        for connection in self._connections:
            connection.forget()
        self.dialect.forget(inherited, in_use=in_use)
        self.pool.forget()
        self.beside.forget()
        if self._writer is not None:
            self._writer.forget()

    def open_now(self) -> tuple[list[Closable], int]:
        """Return the open cursors and connections of the driver, and how many connections are in use."""
        known = list(self._connections)
        return [opened for each in known for opened in each.opened], sum(each.is_busy for each in known)
