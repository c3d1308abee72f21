"""A loop of a node: it calls a step on its own task, and the step returns when to call it again.

If a step raises an error, even SystemExit, the loop reports it and retries after a pause that grows while the errors
continue. A wake-up that arrives while a step runs is not lost: the step is called once more.

An error that ends a loop (an exception that was thrown into its thread, an interpreter out of memory) is kept in
`died_of`. A node cannot work without one of its loops, so the first loop that notices makes the node leave.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from fencepost.core.runtime import Runtime, Task

Step = Callable[[float], float]
"""Does what is due at a monotonic time, and returns the monotonic time at which to call it again."""

# Waits use a clock that stops while the machine is suspended, so they are short and the monotonic clock is read again.
_LONGEST_WAIT_S = 1.0
_FIRST_PAUSE_S = 0.1  # most troubles of a ledger are over at once
_LONGEST_PAUSE_S = 2.0  # so that work continues within two seconds after an outage


class Loop:
    """Calls `step` when it is due or woken, until stopped."""

    def __init__(
        self, name: str, step: Step, *, runtime: Runtime, on_error: Callable[[str, BaseException], None]
    ) -> None:
        self.name = name
        self._step = step
        self._runtime = runtime
        self._on_error = on_error
        self._awake = runtime.event()
        self._stopping = runtime.event()
        self._pause_s = _FIRST_PAUSE_S
        self._task: Task | None = None
        self.died_of: BaseException | None = None

    def start(self) -> None:
        """Start the loop on its own task."""
        self._task = self._runtime.spawn(f"fencepost-{self.name}", self._run)

    def wake(self) -> None:
        """Call the step now. May be called from any thread, also from a signal handler."""
        self._awake.set()

    def stop(self, timeout_s: float) -> bool:
        """Ask the loop to end and wait for it. Return False if a step still hangs."""
        self._stopping.set()
        self._awake.set()
        if self._task is None:
            return True
        self._task.join(timeout_s)
        return not self._task.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._awake.clear()
                self._sleep_until(self._stepped())
        except BaseException as error:  # noqa: BLE001 - the other loops report it; raised here, it would be lost
            self.died_of = error

    def _stepped(self) -> float:
        try:
            wake_at = self._step(self._runtime.monotonic())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - otherwise the node would seem alive without this loop
            with suppress(Exception):
                self._on_error(self.name, error)
            self._pause()
            return self._runtime.monotonic()
        self._pause_s = _FIRST_PAUSE_S
        return wake_at

    def _pause(self) -> None:
        """Wait after an error. A wake-up does not end the wait: frequent hints would overload a failing server."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_PAUSE_S)
        self._stopping.wait(pause_s * (0.5 + self._runtime.random()))

    def _sleep_until(self, wake_at: float) -> None:
        while not self._stopping.is_set():
            left_s = wake_at - self._runtime.monotonic()
            if left_s <= 0 or self._awake.wait(min(left_s, _LONGEST_WAIT_S)):
                return
