"""The database that a ledger is kept in: its tables, its dialect, and connections to it. Connects when first used."""

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

POOL_SIZE = 5
BESIDE = 2


def _busy(what: str) -> Callable[[float], LedgerUnavailable]:
    """Return what makes the error of whoever waited in vain for `what`."""
    return lambda waited_s: LedgerUnavailable(f"{what} was busy for {spelled(round(waited_s, 3))}: nothing was done")


class Database:
    """Where a ledger is kept: what all its calls need. Shows no password."""

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
        # For who reads while a transaction of the caller's has locks: all of the pool may be waiting for these.
        self.beside = self._pool(BESIDE)
        self.known_identity: str | None = None
        self.known_naming: tuple[float, Naming] | None = None  # until when (monotonic), and what
        if url.is_file:
            FORKED_SQLITE.join(self.open_now)
        runtime.after_fork(self, self._forget)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def connect(self, name: str) -> LedgerConnection:
        """Return a new connection for one loop; it is opened when it is first used."""
        connection = LedgerConnection(name, self.dialect, writer=self._writer)
        self._connections.add(connection)
        return connection

    def _pool(self, limit: int) -> Pool[LedgerConnection]:
        """Return a pool of connections that the threads of users share, one call at a time each."""
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
        """Have whoever is silent within a transaction for so long cut off: a paused process keeps its locks till then.

        Of connections that are made from now on. Never longer than a call may take.
        """
        self.dialect.silence_s = min(limit_s, self.dialect.timeout_s)

    @property
    def held_by(self) -> str | None:
        """Whose transaction, begun by this context, has the SQLite file to itself; None if nobody's, or on a server."""
        return None if self._writer is None else holder_of(str(self.url.path))

    def write(self, work: Callable[[Cursor], T]) -> T:
        """Do `work` in a transaction on a pooled connection; see `LedgerConnection.write`."""
        if (holder := self.held_by) is not None:
            raise ConfigurationError(
                f"a transaction of {holder} is open, and has the SQLite file of the ledger to itself: to ask for "
                "something inside of it, pass it on, as in enqueue(…, tx=tx); or ask after its block"
            )
        with self.pool.borrow(self.dialect.timeout_s) as connection:
            return connection.write(work)

    def read(self, work: Callable[[Cursor], T]) -> T:
        """Do `work`, which changes nothing, on a pooled connection; see `LedgerConnection.read`."""
        with self.pool.borrow(self.dialect.timeout_s) as connection:
            return connection.read(work)

    def read_beside(self, work: Callable[[Cursor], T]) -> T:
        """Do `work`, which changes nothing and waits for no lock, while a transaction of the caller's is open."""
        with self.beside.borrow(self.dialect.timeout_s) as connection:
            return connection.read(work)

    def rows(self, cursor: Cursor, statement: ClauseElement) -> list[Row]:
        """Execute what SQLAlchemy has put together, and fetch all."""
        return list(self.dialect.execute(cursor, statement).fetchall())

    def change(self, cursor: Cursor, statement: ClauseElement) -> int:
        """Execute what SQLAlchemy has put together, and count the rows it found."""
        return self.dialect.execute(cursor, statement).rowcount

    def now_us(self, connection: LedgerConnection | None = None) -> int:
        """Ask what time it is in the ledger."""
        return (connection or self).read(self.dialect.now_us)

    def close(self) -> None:
        """Close the pooled connections. Those of loops are closed by their owners. A later use opens them again."""
        self.pool.drop_idle()
        self.beside.drop_idle()

    def _forget(self) -> None:
        """Come to terms, in a forked child, with connections that are the parent's."""
        inherited, in_use = self.open_now()
        for connection in self._connections:
            connection.forget()
        self.dialect.forget(inherited, in_use=in_use)
        self.pool.forget()
        self.beside.forget()
        if self._writer is not None:
            self._writer.forget()

    def open_now(self) -> tuple[list[Closable], int]:
        """Return the driver's cursors and connections that are open, and how many of the latter are in use."""
        known = list(self._connections)
        return [opened for each in known for opened in each.opened], sum(each.is_busy for each in known)
