"""Turns: at most so many at a time, first come first served, and nobody waits for ever.

Guards the one writer of a SQLite file within this process, and the connections that user threads share. A plain lock
would do, if a thread that asks for a second turn within its first did not then wait for itself until the end of time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from fencepost.core.duration import spelled
from fencepost.core.runtime import Event, Runtime
from fencepost.errors import LedgerUnavailable


class Turns:
    """Gives out `limit` turns. `what` names, in a message, what was waited for."""

    def __init__(self, runtime: Runtime, *, limit: int, what: str) -> None:
        self._runtime = runtime
        self._limit = limit
        self._what = what
        self.forget()

    def forget(self) -> None:
        """Start anew, in a forked child: whoever had a turn is not here."""
        self._lock = self._runtime.lock()
        self._queue: deque[Event] = deque()
        self._free = self._limit

    @contextmanager
    def turn(self, timeout_s: float) -> Iterator[None]:
        """Wait for a turn and have it until the context ends; `LedgerUnavailable` if none comes within `timeout_s`."""
        with self._lock:
            is_free = self._free > 0
            if is_free:
                self._free -= 1
            else:
                served = self._runtime.event()
                self._queue.append(served)
        if not is_free:
            self._wait(served, timeout_s)
        try:
            yield
        finally:
            self._pass_on()

    def _wait(self, served: Event, timeout_s: float) -> None:
        try:
            served.wait(timeout_s)
        except BaseException:  # a signal's: a turn that is given to us from now on, nobody would pass on
            if not self._is_withdrawn(served):
                self._pass_on()
            raise
        if self._is_withdrawn(served):
            raise LedgerUnavailable(f"{self._what} was busy for {spelled(round(timeout_s, 3))}: nothing was done")

    def _is_withdrawn(self, served: Event) -> bool:
        """Leave the queue; False if it is our turn already."""
        with self._lock:
            if is_waiting := served in self._queue:
                self._queue.remove(served)
        return is_waiting

    def _pass_on(self) -> None:
        with self._lock:
            if self._queue:
                self._queue.popleft().set()
            else:
                self._free += 1
