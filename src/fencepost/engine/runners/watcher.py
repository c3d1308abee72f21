"""A task that looks after a runner: at the times it asked for, sooner when told, and not at all while there is nothing.

It starts with the first thing to look after. What a look raises is told, and the watcher goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.core.runtime import Runtime, Task

NEVER = float("inf")
_PAUSE_S = 0.5


class Watcher:
    """Calls `look(now)`, which returns the monotonic reading of the next look."""

    def __init__(
        self,
        name: str,
        look: Callable[[float], float],
        *,
        runtime: Runtime,
        on_trouble: Callable[[Exception], None],
    ) -> None:
        self._name = name
        self._look = look
        self._runtime = runtime
        self._on_trouble = on_trouble
        self._lock = runtime.lock()
        self._wake = runtime.event()
        self._looks_at = NEVER
        self._is_looking = False
        self._is_closed = False
        self._task: Task | None = None

    def look_by(self, at: float) -> None:
        """See to it that there is a look by then."""
        if self._looks_at > at:
            self._looks_at = at
            if self._is_looking:
                return  # it sees that by itself, right after the look
            if self._task is None:
                self._start()
            else:
                self._wake.set()

    def close(self) -> None:
        """Look no more."""
        self._is_closed = True
        self._wake.set()

    def _start(self) -> None:
        """Start, which begins with a look; if somebody else just did, that look may have been too early for us."""
        with self._lock:
            if self._task is not None:
                self._wake.set()
            elif not self._is_closed:
                try:
                    self._task = self._runtime.spawn(self._name, self._run)
                except Exception:
                    self._looks_at = NEVER  # whoever asks next has to try again
                    raise

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.clear()
            self._looks_at, self._is_looking = NEVER, True
            look_at = self._looked()
            self._is_looking = False
            self._looks_at = min(look_at, self._looks_at)
            nap_s = self._looks_at - self._runtime.monotonic()
            if nap_s > 0:
                self._wake.wait(None if nap_s == NEVER else nap_s)

    def _looked(self) -> float:
        now = self._runtime.monotonic()
        try:
            return self._look(now)
        except Exception as error:  # noqa: BLE001 - without a watcher no run would end at its deadline
            self._on_trouble(error)
            return now + _PAUSE_S
