"""Waits for a condition with a deadline, instead of sleeping for a fixed time; and measures how long something takes.

Deadlines are generous, because they only end a test that would hang. To test that something is fast, measure it with
`Stopwatch`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_EVERY_S = 0.01  # how late a condition is noticed, and the sleep by which `Stopwatch` measures delays
_LONGEST_PAUSE_S = 0.5  # how late it is noticed at most, however long the condition itself takes


def until(condition: Callable[[], T | None], deadline_s: float, what: str) -> T:
    """Return the first true result of `condition`; fail with `what` after `deadline_s`.

    A condition that takes long is asked for more rarely: it would take the processor from what it waits for.
    """
    give_up_at = time.monotonic() + deadline_s
    while True:
        asked_at = time.monotonic()
        if result := condition():
            return result
        if asked_at >= give_up_at:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        time.sleep(pause_after(time.monotonic() - asked_at))


def pause_after(took_s: float) -> float:
    """Return how long to pause before a condition is asked for again that took so long."""
    return min(max(_LOOK_EVERY_S, 4 * took_s), _LONGEST_PAUSE_S)  # asking takes a fifth of the time at most


class Stopwatch:
    """Measures the body of a `with` statement: in total, and without the delays of a busy machine.

    On a busy machine, a process may stand still, sometimes for seconds. A thread beside the body measures that: it
    sleeps for 10 ms again and again, and adds up how much longer each sleep took. So `awake_s` can be compared with a
    narrow upper limit, which the clock could not. Compare a lower limit with `whole_s`.

    **Not detected**: a body that does not release the interpreter. The thread then stands still as well, and counts
    this as a delay of the machine.
    """

    def __init__(self) -> None:
        self._seen_late_s = self._began_at = self._seen_at = 0.0
        self._ended_at: float | None = None
        self._is_over = threading.Event()
        self._beside = threading.Thread(target=self._watch, daemon=True)

    @property
    def whole_s(self) -> float:
        """How long it took by the clock, up to now or to the end."""
        return self._now() - self._began_at

    @property
    def late_s(self) -> float:
        """How much of it was delays of the machine."""
        return self._seen_late_s + max(0.0, self._now() - self._seen_at - 2 * _LOOK_EVERY_S)

    @property
    def awake_s(self) -> float:
        """How long it took without the delays of the machine."""
        return self.whole_s - self.late_s

    def __enter__(self) -> Stopwatch:
        self._began_at = self._seen_at = time.monotonic()
        self._beside.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended_at = time.monotonic()
        self._is_over.set()
        self._beside.join()

    def _watch(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._is_over.wait(_LOOK_EVERY_S)
            now = self._now()
            self._seen_late_s += max(0.0, now - self._seen_at - 2 * _LOOK_EVERY_S)
            self._seen_at = now

    def _now(self) -> float:
        return time.monotonic() if self._ended_at is None else self._ended_at
