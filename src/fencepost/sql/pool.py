"""A bounded pool of connections. Every wait has a deadline.

It holds the drivers' connections for lease stores, and for the ledger a `LedgerConnection` each, which connects when it
is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from fencepost.core.runtime import Runtime
from fencepost.sql.turns import Turns

C = TypeVar("C")

UNUSED_S = 5.0  # opening one takes milliseconds, and each costs the server memory


class Pool(Generic[C]):
    """At most `limit` connections, opened when needed. Further callers wait in a queue.

    The connection used last is used next, so the others stay idle. A connection that was idle for `unused_s` is closed
    when another is returned, and by `drop_unused`, for pools that are rarely used.
    """

    def __init__(
        self,
        runtime: Runtime,
        make: Callable[[float], C],
        *,
        close: Callable[[C], object],
        limit: int,
        busy: Callable[[float], Exception],
        unused_s: float = UNUSED_S,
    ) -> None:
        """`make` gets the remaining seconds; `busy` creates the error for a caller whose wait timed out."""
        self._shut = close
        self._runtime = runtime
        self._make = make
        self._unused_s = unused_s
        self._turns = Turns(runtime, limit=limit, busy=busy)
        self._reset()

    def _reset(self) -> None:
        self._lock = self._runtime.lock()
        self._idle: list[tuple[C, float]] = []  # with the time since when
        self._is_open = True

    @contextmanager
    def borrow(self, timeout_s: float) -> Iterator[C]:
        """Borrow a connection for exclusive use. It is returned to the pool in any case, even after an error."""
        connection, _ = self.take(self._runtime.monotonic() + timeout_s)
        try:
            yield connection
        finally:
            self.give(connection)

    def take(self, deadline: float) -> tuple[C, bool]:
        """Take a connection; also return whether it was used before."""
        self._turns.take(deadline - self._runtime.monotonic())
        with self._lock:
            if self._idle:
                return self._idle.pop()[0], True
        return self._new(deadline), False

    def give(self, connection: C) -> None:
        """Return a working connection to the pool."""
        unused = self._kept(connection) if self._is_open else connection
        try:
            if unused is not None:
                self._close(unused)
        finally:
            self._turns.give()

    def drop(self, connection: C) -> None:
        """Close a broken connection instead of returning it."""
        try:
            self._close(connection)
        finally:
            self._turns.give()

    def drop_idle(self) -> None:
        """Close all idle connections: if one is broken, the others are probably broken too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            self._close(connection)

    def drop_unused(self, for_s: float | None = None) -> None:
        """Close the connections that have been idle for long."""
        unused_since = self._runtime.monotonic() - (self._unused_s if for_s is None else for_s)
        with self._lock:
            unused = [connection for connection, since in self._idle if since < unused_since]
            self._idle = [kept for kept in self._idle if kept[1] >= unused_since]
        for connection in unused:
            self._close(connection)

    def open(self) -> None:
        """Keep returned connections from now on."""
        self._is_open = True

    def close(self) -> None:
        """Close the idle connections now, and the others when they are returned."""
        self._is_open = False
        self.drop_idle()

    def open_now(self) -> tuple[list[C], int]:
        """Return the idle connections, and how many are in use."""
        return [connection for connection, _ in self._idle], self._turns.taken

    def forget(self) -> tuple[list[C], int]:
        """Reset the pool after a fork. Returns the idle connections of the parent, and how many were in use."""
        opened = self.open_now()
        self._turns.forget()
        self._reset()
        return opened

    def _kept(self, connection: C) -> C | None:
        """Keep a connection; return another one that has been idle for long, if any."""
        now = self._runtime.monotonic()
        with self._lock:
            self._idle.append((connection, now))
            if len(self._idle) > 1 and self._idle[0][1] < now - self._unused_s:
                return self._idle.pop(0)[0]
        return None

    def _new(self, deadline: float) -> C:
        try:
            return self._make(deadline - self._runtime.monotonic())
        except BaseException:
            self._turns.give()
            raise

    def _close(self, connection: C) -> None:
        with suppress(Exception):
            self._shut(connection)
