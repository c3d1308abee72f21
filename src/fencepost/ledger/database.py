"""The database that a ledger is kept in: its tables, its dialect, and connections to it. Connects when first used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from weakref import WeakSet

from sqlalchemy.sql import ClauseElement

from fencepost.core.forked_sqlite import FORKED_SQLITE
from fencepost.core.runtime import Runtime
from fencepost.ledger.desk import Desk
from fencepost.ledger.dialects import Connection, Cursor, Dialect, Row, dialect_for
from fencepost.ledger.tables import Tables
from fencepost.ledger.turns import Turns
from fencepost.ledger.urls import LedgerUrl

T = TypeVar("T")

POOL_SIZE = 5


class Pool:
    """A few desks that the threads of users share, one call at a time each."""

    def __init__(self, make: Callable[[str], Desk], runtime: Runtime, *, limit: int = POOL_SIZE) -> None:
        self._make = make
        self._turns = Turns(runtime, limit=limit, what="every connection to the ledger")
        self._idle: list[Desk] = []

    @contextmanager
    def borrow(self, timeout_s: float) -> Iterator[Desk]:
        """Lend a desk that nobody else uses meanwhile."""
        with self._turns.turn(timeout_s):
            try:  # lists are safe to pop from and append to without a lock
                desk = self._idle.pop()
            except IndexError:
                desk = self._make("pool")
            try:
                yield desk
            finally:
                self._idle.append(desk)

    def rest(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().rest()

    def forget(self) -> None:
        """Start anew, in a forked child."""
        self._turns.forget()
        self._idle = []


class Database:
    """Where a ledger is kept: what all its calls need. Shows no password."""

    def __init__(self, url: LedgerUrl, runtime: Runtime) -> None:
        self.url = url
        self.runtime = runtime
        self.tables = Tables.of(url)
        self.dialect: Dialect = dialect_for(url, runtime)
        self._writer = Turns(runtime, limit=1, what=self.dialect.product) if self.dialect.has_one_writer else None
        self._desks: WeakSet[Desk] = WeakSet()
        self.pool = Pool(self.desk, runtime)
        self.known_identity: str | None = None
        if self.dialect.name == "sqlite":
            FORKED_SQLITE.join(self.open_now)
        runtime.after_fork(self, self._forget)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def desk(self, name: str) -> Desk:
        """Return a new desk for one loop; it connects when it is first used."""
        desk = Desk(name, self.dialect, writer=self._writer)
        self._desks.add(desk)
        return desk

    def bound_silence(self, limit_s: float) -> None:
        """Have whoever is silent within a transaction for so long cut off: a paused process keeps its locks till then.

        Of connections that are made from now on. Never longer than a call may take.
        """
        self.dialect.silence_s = min(limit_s, self.dialect.timeout_s)

    def write(self, work: Callable[[Cursor], T]) -> T:
        """Do `work` in a transaction on a pooled connection; see `Desk.write`."""
        with self.pool.borrow(self.dialect.timeout_s) as desk:
            return desk.write(work)

    def read(self, work: Callable[[Cursor], T]) -> T:
        """Do `work`, which changes nothing, on a pooled connection; see `Desk.read`."""
        with self.pool.borrow(self.dialect.timeout_s) as desk:
            return desk.read(work)

    def rows(self, cursor: Cursor, statement: ClauseElement) -> list[Row]:
        """Execute what SQLAlchemy has put together, and fetch all."""
        return list(self.dialect.execute(cursor, statement).fetchall())

    def change(self, cursor: Cursor, statement: ClauseElement) -> int:
        """Execute what SQLAlchemy has put together, and count the rows it found."""
        return self.dialect.execute(cursor, statement).rowcount

    def now_us(self, desk: Desk | None = None) -> int:
        """Ask what time it is in the ledger."""
        return (desk or self).read(self.dialect.now_us)

    def close(self) -> None:
        """Close the pooled connections. Desks are closed by their owners; a later use opens anew."""
        self.pool.rest()

    def _forget(self) -> None:
        """Come to terms, in a forked child, with connections that are the parent's."""
        inherited, in_use = self.open_now()
        for desk in self._desks:
            desk.forget()
        self.dialect.forget(inherited, in_use=in_use)
        self.pool.forget()
        if self._writer is not None:
            self._writer.forget()

    def open_now(self) -> tuple[list[Connection], int]:
        """Return the connections of all desks, and how many of these are in use."""
        desks = list(self._desks)
        opened = [each for desk in desks if (each := desk.connection) is not None]
        return opened, sum(desk.is_busy for desk in desks)
