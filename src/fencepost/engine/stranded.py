"""Runs that wait for a key that no run holds: they are searched for as often as that is cheap.

The node that frees a key queues the next run that waits for it. That fails if the node cannot see the waiting run,
because its transaction has an older snapshot, and is killed before it finishes its run. So if a look shows that runs
wait for keys at all, the node searches for keys that no run holds: at most once a second, and for at most about a
hundredth of its time. If no run waits for a key, there is no query.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.promoting import promote_stranded

_EVERY_S = 1.0  # how late the next run of a key may begin if its promotion was lost
_LONGEST_S = 60.0  # the reaper looks in any case, about once a minute
_SHARE = 100  # looking takes at most a hundredth of the time, whatever the ledger's size


class Stranded:
    """The search for such runs, and when it may be repeated."""

    __slots__ = ("_runtime", "may_look_at")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.may_look_at = float("-inf")

    def queued(self, connection: LedgerConnection) -> bool:
        """Queue the runs that wait for a free key. Return whether there were any."""
        began_at = self._runtime.monotonic()
        try:
            return promote_stranded(connection) > 0
        finally:
            ended_at = self._runtime.monotonic()
            self.may_look_at = ended_at + min(max(_EVERY_S, _SHARE * (ended_at - began_at)), _LONGEST_S)
