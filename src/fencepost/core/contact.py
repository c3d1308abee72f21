"""How long a node has been in unbroken contact with the ledger.

After an outage every session looks expired, also those of nodes that live and are about to renew. So nobody is
declared dead by a node that has not itself been in contact for a whole ttl. Contact breaks when a call is not
answered, and also when nothing was asked for too long: a process that was paused did not watch.
"""

from __future__ import annotations


class Contact:
    """Unbroken contact. Monotonic readings; the caller serializes the calls."""

    __slots__ = ("_answered_at", "_longest_gap_s", "_since")

    def __init__(self, *, longest_gap_s: float) -> None:
        self._longest_gap_s = longest_gap_s
        self._since: float | None = None
        self._answered_at = float("-inf")

    def answered(self, now: float) -> None:
        """Note that the ledger answered."""
        if self._since is None or now - self._answered_at > self._longest_gap_s:
            self._since = now
        self._answered_at = now

    def unanswered(self) -> None:
        """Note that a call was not answered: what is seen next is seen for the first time."""
        self._since = None

    def lasted_s(self, now: float) -> float:
        """How long contact has been unbroken at `now`."""
        if self._since is None or now - self._answered_at > self._longest_gap_s:
            return 0.0
        return now - self._since
