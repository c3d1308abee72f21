"""How far ahead of its free slots a runner claims, and how many threads a queue deserves.

Claims that wait in this process cost nothing and hide the way to the ledger, as long as they start soon. So a runner
takes as many ahead as its slots do in about 50 ms, by what it has measured, and none once runs take longer than that:
whatever waits here behind a long run could start on another node.

**Promises.** Nothing is taken ahead before something was measured. The lead is at most `MOST_AHEAD`, at most doubles
with each measurement (from one per slot), and is zero at once when runs take longer than `HORIZON_S` each.
"""

from __future__ import annotations

from fencepost.engine.runners.run_times import RunTimes

HORIZON_S = 0.05
MOST_AHEAD = 500
# Runs quicker than this are drained by one thread: another would cost more than it does, and keep the exchange waiting.
QUICK_S = 0.0001


class ClaimAhead:
    """How many claims the runner of these slots takes ahead, by how long runs take."""

    __slots__ = ("_slots", "ahead", "times")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.times = RunTimes()
        self.ahead = 0

    def measured(self, count: int, total_s: float) -> None:
        """Note that `count` runs, one after the other, took `total_s`."""
        self.times.note(total_s / count)
        worth = self._slots * self.times.within(HORIZON_S)
        self.ahead = min(worth, max(2 * self.ahead, self._slots), MOST_AHEAD)

    def beside(self, stuck: int) -> int:
        """Return how many to take ahead while `stuck` slots are in runs longer than the horizon."""
        return self.ahead * max(self._slots - stuck, 0) // self._slots

    @property
    def is_quick(self) -> bool:
        """Whether runs are so quick that one thread does them best."""
        return self.times.are_shorter_than(QUICK_S)

    def hands(self, queued: int) -> int:
        """Return how many slots should be at work on `queued` claims."""
        return min(queued, 1 if self.is_quick else self._slots)
