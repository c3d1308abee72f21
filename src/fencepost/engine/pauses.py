"""Pauses: how long this process was stalled, for choosing a ttl and for people who wonder.

A step that wants to be called every so often, and finds that much more time has passed, was held up: by a paused
container, a swapped-out process, C code that kept the interpreter to itself, a machine that slept.
"""

from __future__ import annotations

from collections.abc import Callable

_EVERY_S = 0.5
_WORTH_TELLING_S = 0.5


class Pauses:
    """The step that measures."""

    def __init__(self, on_pause: Callable[[float], None]) -> None:
        self._on_pause = on_pause
        self._expected_at: float | None = None
        self.longest_s = 0.0

    def step(self, now: float) -> float:
        """Compare when this was called with when it should have been."""
        expected_at, self._expected_at = self._expected_at, now + _EVERY_S
        if expected_at is not None and now - expected_at > _WORTH_TELLING_S:
            paused_s = now - expected_at
            self.longest_s = max(self.longest_s, paused_s)
            self._on_pause(paused_s)
        return self._expected_at
