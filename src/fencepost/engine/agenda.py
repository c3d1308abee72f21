"""When the exchange claims, and when it looks. Pure: monotonic readings are arguments.

A *look* tells what is due and when the next thing will be. The time of that is kept until it comes, whatever else is
claimed in between, and when it has come another look is due, for only a look knows what follows. A hint brings a look
forward. What is due by a look, and was not for us, is tried again ever less often; a hint begins that anew.

**Promises.** There is a look at least every `poll_s`, however busy the node is: it is how cancellations, new schedules
and the dead are noticed. `wake_at` lies in the past only if `is_due` or `wants_look` will say so, once.
"""

from __future__ import annotations

_FIRST_RECHECK_S = 0.05
_NEVER = float("inf")


class Agenda:
    """The times that one exchange has in mind. `hint` may be called from any thread."""

    __slots__ = ("_due_at", "_is_hinted", "_look_at", "_poll_s", "_recheck_s")

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._due_at = self._look_at = -_NEVER
        self._recheck_s = 0.0
        self._is_hinted = False

    @property
    def wake_at(self) -> float:
        """When there is something to do at the latest."""
        return min(self._due_at, self._look_at)

    def hint(self) -> None:
        """Note that something may have changed in the ledger."""
        self._is_hinted = True

    def due_at(self, at: float) -> None:
        """Note that something will be due."""
        self._due_at = min(self._due_at, at)

    def is_due(self, now: float) -> bool:
        """Whether a time has come that it waited for. Said once."""
        if now < self._due_at:
            return False
        self._due_at = _NEVER
        self.look_by(now)
        return True

    def look_by(self, at: float) -> None:
        """See to it that there is a look by then."""
        self._look_at = min(self._look_at, at)

    def wants_look(self, now: float, *, is_claiming: bool) -> bool:
        """Whether to look now. Hints wait while claims go on: those find whatever there is."""
        return now >= self._look_at or (self._is_hinted and not is_claiming)

    def begin_look(self, now: float) -> bool:
        """Note that a look begins, and is to be repeated if it fails; return whether there was a hint."""
        self.look_by(now)
        is_hinted, self._is_hinted = self._is_hinted, False
        return is_hinted

    def looked(self, now: float, *, next_at: float | None, is_due: bool, is_news: bool) -> None:
        """Note what was seen: what is due now, and when the next thing will be."""
        self._look_at = now + self._poll_s
        self._due_at = _NEVER if next_at is None else next_at
        if is_news or not is_due:
            self._recheck_s = 0.0
        if is_due:
            self.due_at(now + self._recheck_s)
            self._recheck_s = min(max(2 * self._recheck_s, _FIRST_RECHECK_S), self._poll_s)
