"""Turns: a semaphore with a limit, served in order of arrival, and with a timeout.

It guards the single writer of a SQLite file within this process, and the connections of a pool. With a plain lock, a
thread that asks for a second turn during its first would wait for itself for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fencepost.core.runtime import Flag, Runtime


class Turns:
    """Grants at most `limit` turns at a time. After a timeout, raises the error that `busy(timeout_s)` returns."""

    def __init__(self, runtime: Runtime, *, limit: int, busy: Callable[[float], Exception]) -> None:
        self._runtime = runtime
        self._limit = limit
        self._busy = busy
        self.forget()

    def forget(self) -> None:
        """Reset in a forked child: the threads that had a turn do not exist there."""
        self._lock = self._runtime.lock()
        self._queue: deque[Flag] = deque()
        self._free = self._limit

    @property
    def taken(self) -> int:
        """The number of turns that are taken now."""
        return self._limit - self._free

    @contextmanager
    def turn(self, timeout_s: float) -> Iterator[None]:
        """Wait at most `timeout_s` for a turn, and keep it until the context ends."""
        self.take(timeout_s)
        try:
            yield
        finally:
            self.give()

    def take(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for a turn. Return it with `give`."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            served = self._runtime.event()
            self._queue.append(served)
        self._wait(served, timeout_s)

    def give(self) -> None:
        """Return a turn. It passes to the caller that has waited longest."""
        with self._lock:
            if self._queue:
                self._queue.popleft().set()
            else:
                self._free += 1

    def _wait(self, served: Flag, timeout_s: float) -> None:
        try:
            served.wait(max(timeout_s, 0.0))
        except BaseException:  # raised by a signal handler: a turn granted from now on would be lost
            if not self._is_withdrawn(served):
                self.give()
            raise
        if self._is_withdrawn(served):
            raise self._busy(timeout_s)

    def _is_withdrawn(self, served: Flag) -> bool:
        """Leave the queue. Returns False if the turn has already been granted."""
        with self._lock:
            if is_waiting := served in self._queue:
                self._queue.remove(served)
        return is_waiting
