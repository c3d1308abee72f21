"""ZooKeeper's time, as far as its replies show it.

Every write has a timestamp of the leader's clock, in milliseconds, which the reply contains. Between two replies the
time is between two bounds: at least the timestamp plus the time since the reply arrived, and at most the timestamp plus
a millisecond plus the time since the request was sent.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime


class ZooKeeperClock:
    """The latest timestamp, and the bounds of the leader's clock that follow from it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._latest = (0, 0.0, 0.0)

    def read(self, stamp_ms: int, sent_at: float) -> None:
        """Record the timestamp of a reply that has just arrived, to a request sent at `sent_at` (monotonic)."""
        self._latest = (stamp_ms, sent_at, self._runtime.monotonic())

    def earliest_us(self) -> int:
        """Return a time that is not later than the true one."""
        stamp_ms, _, received_at = self._latest
        return stamp_ms * 1000 + int((self._runtime.monotonic() - received_at) * 1_000_000)

    def latest_us(self) -> int:
        """Return a time that is not earlier than the true one."""
        stamp_ms, sent_at, _ = self._latest
        return (stamp_ms + 1) * 1000 + int((self._runtime.monotonic() - sent_at) * 1_000_000)
