"""A task that calls a runner's check at the times that the check returns, and earlier on request.

It starts with the first request, and sleeps while no call is scheduled. If the check raises, the error is reported and
the watcher continues.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.core.runtime import Runtime, Task

NEVER = float("inf")
_PAUSE_S = 0.5  # after an error that was not expected, so that it does not fill the log


class Watcher:
    """Calls `look(now)`, which returns the monotonic time of the next call."""

    def __init__(
        self,
        name: str,
        look: Callable[[float], float],
        *,
        runtime: Runtime,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._name = name
        self._look = look
        self._runtime = runtime
        self._on_trouble = on_error
        self._lock = runtime.lock()
        self._wake = runtime.event()
        self._looks_at = NEVER
        self._is_looking = False
        self._is_closed = False
        self._task: Task | None = None

    def look_by(self, at: float) -> None:
        """Schedule a call of `look` by this time."""
        if self._looks_at > at:
            self._looks_at = at
            if self._is_looking:
                return  # `_run` reads `_looks_at` right after the call
            if self._task is None:
                self._start()
            else:
                self._wake.set()

    def close(self) -> None:
        """Stop calling `look`."""
        self._is_closed = True
        self._wake.set()

    def _start(self) -> None:
        """Start the task, whose first act is a call of `look`.

        If another thread has just started it, that call may have been too early for this request, so wake it again.
        """
        with self._lock:
            if self._task is not None:
                self._wake.set()
            elif not self._is_closed:
                try:
                    self._task = self._runtime.spawn(self._name, self._run)
                except Exception:
                    self._looks_at = NEVER  # so that the next request tries again
                    raise

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.clear()
            self._looks_at, self._is_looking = NEVER, True
            look_at = self._looked()
            self._is_looking = False
            self._looks_at = min(look_at, self._looks_at)
            wait_s = self._looks_at - self._runtime.monotonic()
            if wait_s > 0:
                self._wake.wait(None if wait_s == NEVER else wait_s)

    def _looked(self) -> float:
        now = self._runtime.monotonic()
        try:
            return self._look(now)
        except Exception as error:  # noqa: BLE001 - without a watcher no run would end at its deadline
            self._on_trouble(error)
            return now + _PAUSE_S
