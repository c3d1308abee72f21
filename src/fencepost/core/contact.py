"""How long a node has been in unbroken contact with the ledger.

After an outage every session looks expired, even those of living nodes that are about to renew. So a node declares no
other node dead until it has itself been in contact for a whole ttl. Contact breaks when a call gets no reply, and also
when there was no call for too long: a paused process saw nothing.
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
        """Record a reply of the ledger."""
        if self._since is None or now - self._answered_at > self._longest_gap_s:
            self._since = now
        self._answered_at = now

    def unanswered(self) -> None:
        """Record a call without a reply: contact starts again with the next reply."""
        self._since = None

    def lasted_s(self, now: float) -> float:
        """Return how long contact has been unbroken at `now`."""
        if self._since is None or now - self._answered_at > self._longest_gap_s:
            return 0.0
        return now - self._since
