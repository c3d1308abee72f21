"""How far ahead of its free slots a runner claims, and how many threads a queue deserves.

Claims that wait in this process cost nothing and hide the way to the ledger, as long as they start soon. So a runner
takes as many ahead as its slots do in about 50 ms, by what it has measured, and none once runs take longer than that:
whatever waits here behind a long run could start on another node.

**Promises.** Nothing is taken ahead before something was measured. The lead is at most `MOST_AHEAD`, at most doubles
with each measurement (from one per slot), and is zero at once when runs take longer than `HORIZON_S` each.

What runs take is followed by small steps up and down, which settle at the median. A mean would be ruled by the few runs
that had to wait for the interpreter's lock, and the more threads were woken because of it, the more would have to wait.

Pure: durations are arguments. Not synchronized: a lost update is one measurement less.
"""

from __future__ import annotations

HORIZON_S = 0.05
MOST_AHEAD = 500
# Runs quicker than this are drained by one thread: another would cost more than it does, and keep the exchange waiting.
QUICK_S = 0.0001
_STEP = 1.25
_SHORTEST_S = 1e-6


class Lead:
    """What the runs of one runner take, and what follows from it."""

    __slots__ = ("_slots", "ahead", "typical_s")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.typical_s: float | None = None
        self.ahead = 0

    def measured(self, count: int, total_s: float) -> None:
        """Note that `count` runs, one after the other, took `total_s`."""
        took_s = max(total_s / count, _SHORTEST_S)
        self.typical_s = typical_s = _nearer(self.typical_s, took_s)
        if took_s > HORIZON_S:
            self.ahead = 0
        else:
            worth = self._slots * int(HORIZON_S / typical_s)
            self.ahead = min(worth, max(2 * self.ahead, self._slots), MOST_AHEAD)

    def beside(self, stuck: int) -> int:
        """Return how many to take ahead while `stuck` slots are in runs longer than the horizon."""
        return self.ahead * max(self._slots - stuck, 0) // self._slots

    @property
    def is_quick(self) -> bool:
        """Whether runs are so quick that one thread does them best."""
        return self.typical_s is not None and self.typical_s < QUICK_S

    def hands(self, queued: int) -> int:
        """Return how many slots should be at work on `queued` claims."""
        return min(queued, 1 if self.is_quick else self._slots)


def _nearer(typical_s: float | None, took_s: float) -> float:
    """Return `typical_s` moved one step towards `took_s`."""
    if typical_s is None:
        return took_s
    return min(typical_s * _STEP, took_s) if took_s > typical_s else max(typical_s / _STEP, took_s)
