"""ZooKeeper's time, as far as its answers tell.

Every write is stamped with the leader's clock, in milliseconds, and the answer to a write shows the stamp. Between
two answers the time lies between two bounds: it is at least the stamp plus the time since the answer came, and at
most the stamp plus a millisecond plus the time since the request was sent.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime


class ZooKeeperClock:
    """The latest stamp seen, and what the leader's clock must show by now."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._latest = (0, 0.0, 0.0)

    def read(self, stamp_ms: int, sent_at: float) -> None:
        """Take the stamp of an answer that just came, to a request sent at the monotonic reading `sent_at`."""
        self._latest = (stamp_ms, sent_at, self._runtime.monotonic())

    def earliest_us(self) -> int:
        """Return a time that is not later than the true one."""
        stamp_ms, _, received_at = self._latest
        return stamp_ms * 1000 + int((self._runtime.monotonic() - received_at) * 1_000_000)

    def latest_us(self) -> int:
        """Return a time that is not earlier than the true one."""
        stamp_ms, sent_at, _ = self._latest
        return (stamp_ms + 1) * 1000 + int((self._runtime.monotonic() - sent_at) * 1_000_000)
