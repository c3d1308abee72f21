"""How many claims a runner takes beyond its free slots, and how many threads should work on its queue.

Claims that wait in this process hide the latency of the ledger, and cost nothing as long as they start soon. So a
runner takes ahead as many claims as its slots complete in about 50 ms, according to its measurements. It takes none
ahead when runs take longer than that, because a claim that waits behind a long run could start on another node.

**Promises.** No claim is taken ahead before a run was measured. The number is at most `MOST_AHEAD`. It at most doubles
with each measurement, starting at one per slot, and drops to zero at once when runs take longer than `HORIZON_S` each.
"""

from __future__ import annotations

from fencepost.engine.runners.run_times import RunTimes

HORIZON_S = 0.05  # what is claimed ahead waits no longer than this, should the node die
MOST_AHEAD = 500  # one batch of the exchange
# One thread executes all runs quicker than this: a second thread would cost more than it saves, and delay the exchange.
QUICK_S = 0.0001


class ClaimAhead:
    """How many claims a runner with this number of slots takes ahead, given how long runs take."""

    __slots__ = ("_slots", "ahead", "times")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.times = RunTimes()
        self.ahead = 0

    def measured(self, count: int, total_s: float) -> None:
        """Record that `count` consecutive runs took `total_s`."""
        self.times.note(total_s / count)
        worth = self._slots * self.times.within(HORIZON_S)
        self.ahead = min(worth, max(2 * self.ahead, self._slots), MOST_AHEAD)

    def beside(self, stuck: int) -> int:
        """Return how many claims to take ahead while `stuck` slots execute runs longer than the horizon."""
        return self.ahead * max(self._slots - stuck, 0) // self._slots

    @property
    def is_quick(self) -> bool:
        """Whether runs are so quick that one thread executes them fastest."""
        return self.times.are_shorter_than(QUICK_S)

    def threads_for(self, queued: int) -> int:
        """Return how many threads should work on `queued` claims."""
        return min(queued, 1 if self.is_quick else self._slots)
