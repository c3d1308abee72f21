"""Runs that wait for a key which nobody has: looked for as often as that is cheap.

Whoever frees a key queues the next in line. That fails if it cannot see who waits, because its transaction has an older
snapshot, and is killed before it tells the end of its run. So a node whose look says that keys are awaited at all asks
for which of them nobody holds: at most once a second, and for at most a hundredth of its time. Where no run waits for a
key, nothing is asked.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.promoting import promote_stranded

_EVERY_S = 1.0
_LONGEST_S = 60.0  # the reaper looks in any case, about once a minute
_SHARE = 100


class Stranded:
    """When one looked last, and what it cost."""

    __slots__ = ("_runtime", "may_look_at")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.may_look_at = float("-inf")

    def queued(self, connection: LedgerConnection) -> bool:
        """Queue whoever waits for a key that is free; whether there was somebody."""
        began_at = self._runtime.monotonic()
        try:
            return promote_stranded(connection) > 0
        finally:
            ended_at = self._runtime.monotonic()
            self.may_look_at = ended_at + min(max(_EVERY_S, _SHARE * (ended_at - began_at)), _LONGEST_S)
