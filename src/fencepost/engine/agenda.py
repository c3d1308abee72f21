"""When the exchange claims, and when it looks. Pure: monotonic times are arguments.

A *look* is a query that returns whether a run is due and when the next one will be. That time is kept until it comes,
whatever is claimed in between. Then another look is due, because only a look knows the time after that. A hint makes
the next look earlier. If a look finds a due run that this node cannot claim, the claim is retried with growing pauses.
A hint resets the pause.

**Promises.** There is a look at least every `poll_s`, however busy the node is: it is how cancellations, new schedules
and dead nodes are noticed. `wake_at` is in the past only if `is_due` or `wants_look` will return True, once.
"""

from __future__ import annotations

_FIRST_RECHECK_S = 0.05  # another node's transaction is about to commit; doubled up to a poll
_NEVER = float("inf")


class Agenda:
    """The times at which one exchange acts. `hint` may be called from any thread."""

    __slots__ = ("_due_at", "_is_hinted", "_look_at", "_poll_s", "_recheck_s")

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._due_at = self._look_at = -_NEVER
        self._recheck_s = 0.0
        self._is_hinted = False

    @property
    def wake_at(self) -> float:
        """The latest time of the next claim or look."""
        return min(self._due_at, self._look_at)

    def hint(self) -> None:
        """Record that something may have changed in the ledger."""
        self._is_hinted = True

    def due_at(self, at: float) -> None:
        """Record that a run will be due at this time."""
        self._due_at = min(self._due_at, at)

    def is_due(self, now: float) -> bool:
        """Whether a recorded due time has come. True only once for each."""
        if now < self._due_at:
            return False
        self._due_at = _NEVER
        self.look_by(now)
        return True

    def look_by(self, at: float) -> None:
        """Schedule a look by this time."""
        self._look_at = min(self._look_at, at)

    def wants_look(self, now: float, *, is_claiming: bool) -> bool:
        """Whether to look now. Hints wait while claims are made, because these find all due runs."""
        return now >= self._look_at or (self._is_hinted and not is_claiming)

    def begin_look(self, now: float) -> bool:
        """Record that a look begins, and repeat it if it fails. Return whether there was a hint."""
        self.look_by(now)
        is_hinted, self._is_hinted = self._is_hinted, False
        return is_hinted

    def looked(self, now: float, *, next_at: float | None, is_due: bool, was_hinted: bool) -> None:
        """Record the result of a look: whether a run is due now, and when the next one will be."""
        self._look_at = now + self._poll_s
        self._due_at = _NEVER if next_at is None else next_at
        if was_hinted or not is_due:
            self._recheck_s = 0.0
        if is_due:
            self.due_at(now + self._recheck_s)
            self._recheck_s = min(max(2 * self._recheck_s, _FIRST_RECHECK_S), self._poll_s)
