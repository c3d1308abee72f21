"""Runtimes for tests: a manual clock, a wrong wall clock, and a process that can be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fencepost.core import runtime
from fencepost.threaded import ThreadedRuntime


class ManualClock:
    """A monotonic clock that moves only on `advance`; for tests of pure rules."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at

    def advance(self, duration_s: float) -> float:
        """Move forward and return the new reading."""
        self.at += duration_s
        return self.at


class SkewedRuntime(ThreadedRuntime):
    """A machine whose wall clock is off by a constant."""

    def __init__(self, offset_s: float) -> None:
        self._offset_us = round(offset_s * 1_000_000)

    def wall_us(self) -> int:
        """Return a wrong time."""
        return super().wall_us() + self._offset_us


class StoppableRuntime(ThreadedRuntime):
    """Threads that can be stopped as SIGSTOP stops a process: no wait ends before `cont`."""

    def __init__(self) -> None:
        self._may_run = threading.Event()
        self._may_run.set()

    def stop(self) -> None:
        """From now on, let no wait end."""
        self._may_run.clear()

    def cont(self) -> None:
        """Let all waits end again."""
        self._may_run.set()

    def sleep(self, duration_s: float) -> None:
        """Sleep, and longer while stopped."""
        super().sleep(duration_s)
        self._may_run.wait()

    def event(self) -> runtime.Flag:
        """Return an event whose waiters can be stopped."""
        return _StoppableEvent(self._may_run)

    def spawn(self, name: str, work: Callable[[], None]) -> runtime.Task:
        """Start work that begins only while not stopped."""

        def run() -> None:
            self._may_run.wait()
            work()

        return super().spawn(name, run)


class _StoppableEvent(threading.Event):
    def __init__(self, may_run: threading.Event) -> None:
        super().__init__()
        self._may_run = may_run

    def wait(self, timeout: float | None = None) -> bool:
        result = super().wait(timeout)
        self._may_run.wait()
        return result or self.is_set()
