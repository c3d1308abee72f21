"""A psycopg connection whose every wait ends at a deadline.

psycopg knows no read timeout: against a server that accepts bytes and never answers, `execute` would wait for ever.
It drives generators that say what they wait for; here they are driven by our own poll, which knows when to stop.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.waiting import Ready, Wait

from fencepost.leases.stores.sql.backend import CallTimedOut, Ending, Row

RV = TypeVar("RV")


class BoundedConnection(psycopg.Connection[Row]):
    """A connection that raises `CallTimedOut` at `deadline` and is then of no use any more."""

    deadline = float("inf")
    clock: Callable[[], float]

    def wait(self, gen: Generator[Any, Any, RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Drive `gen` until it is done or the deadline passes."""
        descriptor = self.pgconn.socket
        poll = select.poll()
        try:
            wanted = next(gen)
            while True:
                poll.register(descriptor, _EVENTS[wanted])
                left_s = self.deadline - self.clock()
                ready = poll.poll(left_s * 1000) if left_s > 0 else []
                if not ready:
                    raise CallTimedOut
                wanted = gen.send(_ready(ready[0][1]))
        except StopIteration as stop:
            answer: RV = stop.value
            return answer


_EVENTS = {
    Wait.R: select.POLLIN,
    Wait.W: select.POLLOUT,
    Wait.RW: select.POLLIN | select.POLLOUT,
}


def _ready(events: int) -> Ready:
    """Translate; an error or a hang-up is something to read."""
    writable = events & select.POLLOUT
    readable = events & ~select.POLLOUT
    return Ready.RW if readable and writable else Ready.W if writable else Ready.R


class PsycopgConnection:
    """The seam's connection on psycopg. `is_proxied`: a pooler stands between us and the server."""

    def __init__(self, raw: BoundedConnection, *, end_sql: str, begin_sql: str, is_proxied: bool) -> None:
        self.raw = raw
        self.repeats = False
        self.is_proxied = is_proxied
        self._cursor = raw.cursor()
        self._execute = self._cursor.execute
        self._end_sql = end_sql
        self._begin_sql = begin_sql

    @property
    def deadline(self) -> float:
        """When the call under way must end."""
        return self.raw.deadline

    @deadline.setter
    def deadline(self, at: float) -> None:
        self.raw.deadline = at

    def begin_call(self) -> None:
        """Nothing: a broken connection shows itself soon enough."""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Execute and fetch all."""
        return self._execute(sql, parameters).fetchall()

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute and count."""
        return self._execute(sql, parameters).rowcount

    def number(self, sql: str, parameters: Sequence[Any] = ()) -> int | None:
        """Execute and fetch the one number it returns."""
        row = self._execute(sql, parameters).fetchone()
        return None if row is None else row[0]

    def end_grant(self, ending: Ending) -> tuple[bool, bool]:
        """End and record by one statement: a data-modifying WITH."""
        row = self._execute(self._end_sql, (*ending.parameters, ending.why)).fetchone()
        return (False, False) if row is None else (True, row[0])

    def begin(self) -> None:
        """Begin a transaction that the server ends by itself if this process falls silent in the middle."""
        self._execute(self._begin_sql)

    def commit(self) -> None:
        """Commit."""
        self._execute("COMMIT")

    def rollback(self) -> None:
        """Roll back, if there is anything to roll back."""
        if self.raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self._execute("ROLLBACK")

    def close(self) -> None:
        """Close at once."""
        self.raw.close()
