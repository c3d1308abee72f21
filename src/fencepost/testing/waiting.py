"""Waiting for something to become true, with a deadline, instead of sleeping and hoping; and measuring how long.

Deadlines are generous: they end a test that would hang. Who claims that something is quick measures it (`Stopwatch`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_EVERY_S = 0.01


def until(condition: Callable[[], T | None], deadline_s: float, what: str) -> T:
    """Return the first true answer of `condition`; fail with `what` after `deadline_s`."""
    give_up_at = time.monotonic() + deadline_s
    while True:
        is_last_try = time.monotonic() >= give_up_at
        if result := condition():
            return result
        if is_last_try:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        time.sleep(_LOOK_EVERY_S)


class Stopwatch:
    """How long the body of a `with` takes: all in all, and without what the machine was late by.

    A machine with too much to do lets a process stand still, for seconds at times. A thread beside the body sees that:
    it sleeps 10 ms again and again, and adds up by how much each sleep was too long. So `awake_s` may be held against
    a narrow limit, where a clock could not; what must take long at least is held against `whole_s`.

    **Not seen**: a body that keeps the interpreter to itself. The thread beside it stands still as well, and takes that
    for the machine's fault.
    """

    def __init__(self) -> None:
        self._seen_late_s = self._began_at = self._seen_at = 0.0
        self._ended_at: float | None = None
        self._is_over = threading.Event()
        self._beside = threading.Thread(target=self._watch, daemon=True)

    @property
    def whole_s(self) -> float:
        """How long it took by the clock, up to now or to its end."""
        return self._now() - self._began_at

    @property
    def late_s(self) -> float:
        """How much of it the machine was late by."""
        return self._seen_late_s + max(0.0, self._now() - self._seen_at - 2 * _LOOK_EVERY_S)

    @property
    def awake_s(self) -> float:
        """How long it took, without what the machine was late by."""
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
