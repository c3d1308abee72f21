"""A bounded pool of connections, whose every wait has a deadline.

For the lease stores it keeps connections, and for the ledger desks, which connect by themselves when they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from fencepost.core.runtime import Runtime
from fencepost.sql.turns import Turns

C = TypeVar("C")

UNUSED_S = 5.0  # to open one takes milliseconds, and each costs the server memory


class Pool(Generic[C]):
    """At most `limit` connections, made when needed. Who comes too many waits in line.

    The one used last is used next, so those at the bottom rest; what has rested for `unused_s` is closed by whoever
    comes, and by `drop_unused`, where perhaps nobody comes.
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
        """`make` gets the seconds that are left; `busy` makes the error for whoever waits in vain."""
        self._shut = close
        self._runtime = runtime
        self._make = make
        self._unused_s = unused_s
        self._turns = Turns(runtime, limit=limit, busy=busy)
        self._reset()

    def _reset(self) -> None:
        self._lock = self._runtime.lock()
        self._idle: list[tuple[C, float]] = []  # and since when
        self._is_open = True

    @contextmanager
    def borrow(self, timeout_s: float) -> Iterator[C]:
        """Lend a connection that nobody else uses meanwhile; whatever became of it, it is taken back."""
        connection, _ = self.take(self._runtime.monotonic() + timeout_s)
        try:
            yield connection
        finally:
            self.give(connection)

    def take(self, deadline: float) -> tuple[C, bool]:
        """Return a connection, and whether it was used before."""
        self._turns.take(deadline - self._runtime.monotonic())
        with self._lock:
            if self._idle:
                return self._idle.pop()[0], True
        return self._new(deadline), False

    def give(self, connection: C) -> None:
        """Put a connection back that is in good order."""
        unused = self._kept(connection) if self._is_open else connection
        try:
            if unused is not None:
                self._close(unused)
        finally:
            self._turns.give()

    def drop(self, connection: C) -> None:
        """Throw away a connection that is not."""
        try:
            self._close(connection)
        finally:
            self._turns.give()

    def drop_idle(self) -> None:
        """Throw away all that are not in use: where one broke, the others are likely broken, too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            self._close(connection)

    def drop_unused(self, for_s: float | None = None) -> None:
        """Throw away those that nobody has needed for long."""
        unused_since = self._runtime.monotonic() - (self._unused_s if for_s is None else for_s)
        with self._lock:
            unused = [connection for connection, since in self._idle if since < unused_since]
            self._idle = [kept for kept in self._idle if kept[1] >= unused_since]
        for connection in unused:
            self._close(connection)

    def open(self) -> None:
        """Keep connections from now on."""
        self._is_open = True

    def close(self) -> None:
        """Throw away what is not in use now, and what is in use when it comes back."""
        self._is_open = False
        self.drop_idle()

    def open_now(self) -> tuple[list[C], int]:
        """Return the idle connections, and how many are in use."""
        return [connection for connection, _ in self._idle], self._turns.taken

    def forget(self) -> tuple[list[C], int]:
        """Start anew after a fork. Return the idle connections of the parent, and how many were in use."""
        opened = self.open_now()
        self._turns.forget()
        self._reset()
        return opened

    def _kept(self, connection: C) -> C | None:
        """Keep a connection; return another in its place that nobody has needed for long."""
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
