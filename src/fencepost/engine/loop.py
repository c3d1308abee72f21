"""A loop of a node: a step that says when it wants to be called again, on a task of its own.

Whatever a step raises, the loop goes on: it tells what happened and tries again, after a pause that grows while the
trouble lasts. It never dies alone, not even if somebody who watches it wants to exit. A wake that comes while a step
runs is not lost: the step is made once more.

What no loop survives (an exception that was thrown into its thread, an interpreter out of memory) is kept in `died_of`:
a node without one of its loops is none, and whoever sees it first has it leave.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from fencepost.core.runtime import Runtime, Task

Step = Callable[[float], float]
"""Does what is due at a monotonic reading, and returns the reading at which it wants to be called again."""

# Waits count on a clock that stops while the machine sleeps; so they are cut short and the real one is read.
_LONGEST_NAP_S = 1.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class Loop:
    """Calls `step` when it is due or woken, until stopped."""

    def __init__(
        self, name: str, step: Step, *, runtime: Runtime, on_trouble: Callable[[str, BaseException], None]
    ) -> None:
        self.name = name
        self._step = step
        self._runtime = runtime
        self._on_trouble = on_trouble
        self._awake = runtime.event()
        self._stopping = runtime.event()
        self._pause_s = _FIRST_PAUSE_S
        self._task: Task | None = None
        self.died_of: BaseException | None = None

    def start(self) -> None:
        """Begin, on a task of its own."""
        self._task = self._runtime.spawn(f"fencepost-{self.name}", self._run)

    def wake(self) -> None:
        """Call the step now; may be called from any thread, also from a signal handler's."""
        self._awake.set()

    def stop(self, timeout_s: float) -> bool:
        """Ask it to end and wait for it; False if a step still hangs."""
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
        except BaseException as error:  # noqa: BLE001 - told by those that go on; here nobody would hear of it
            self.died_of = error

    def _stepped(self) -> float:
        try:
            wake_at = self._step(self._runtime.monotonic())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - without it the node would look alive, and not be
            with suppress(Exception):
                self._on_trouble(self.name, error)
            self._pause()
            return self._runtime.monotonic()
        self._pause_s = _FIRST_PAUSE_S
        return wake_at

    def _pause(self) -> None:
        """Wait out the trouble; no wake shortens it, or whoever wakes often would keep a broken server busy."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_PAUSE_S)
        self._stopping.wait(pause_s * (0.5 + self._runtime.random()))

    def _sleep_until(self, wake_at: float) -> None:
        while not self._stopping.is_set():
            left_s = wake_at - self._runtime.monotonic()
            if left_s <= 0 or self._awake.wait(min(left_s, _LONGEST_NAP_S)):
                return
