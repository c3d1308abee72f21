"""Turns: at most so many at a time, first come first served, and nobody waits for ever.

Guards the one writer of a SQLite file within this process, and the connections of a pool. A plain lock would do, if a
thread that asks for a second turn within its first did not then wait for itself until the end of time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fencepost.core.runtime import Flag, Runtime


class Turns:
    """Gives out `limit` turns. Whoever waits in vain gets the error that `busy` makes of how long it has waited."""

    def __init__(self, runtime: Runtime, *, limit: int, busy: Callable[[float], Exception]) -> None:
        self._runtime = runtime
        self._limit = limit
        self._busy = busy
        self.forget()

    def forget(self) -> None:
        """Start anew, in a forked child: whoever had a turn is not here."""
        self._lock = self._runtime.lock()
        self._queue: deque[Flag] = deque()
        self._free = self._limit

    @property
    def taken(self) -> int:
        """How many have a turn now."""
        return self._limit - self._free

    @contextmanager
    def turn(self, timeout_s: float) -> Iterator[None]:
        """Wait for a turn, at most so long, and have it until the context ends."""
        self.take(timeout_s)
        try:
            yield
        finally:
            self.give()

    def take(self, timeout_s: float) -> None:
        """Wait for a turn, at most so long. Whoever got one gives it back with `give`."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            served = self._runtime.event()
            self._queue.append(served)
        self._wait(served, timeout_s)

    def give(self) -> None:
        """Give a turn back: to whoever has waited longest."""
        with self._lock:
            if self._queue:
                self._queue.popleft().set()
            else:
                self._free += 1

    def _wait(self, served: Flag, timeout_s: float) -> None:
        try:
            served.wait(max(timeout_s, 0.0))
        except BaseException:  # a signal's: a turn that is given to us from now on, nobody would pass on
            if not self._is_withdrawn(served):
                self.give()
            raise
        if self._is_withdrawn(served):
            raise self._busy(timeout_s)

    def _is_withdrawn(self, served: Flag) -> bool:
        """Leave the queue; False if it is our turn already."""
        with self._lock:
            if is_waiting := served in self._queue:
                self._queue.remove(served)
        return is_waiting
