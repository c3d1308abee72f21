"""Cleans up: removes old history, and ends dead sessions whose locks no other process has asked for.

The record of a name is kept for ever, because its token must increase. Only the records of nodes' sessions are removed,
after the history period: an identity is never reused, and otherwise one record per start of every process would remain.
"""

from __future__ import annotations

from contextlib import suppress

from fencepost.core.names import NODE_LEASE
from fencepost.core.runtime import Runtime
from fencepost.errors import StoreUnavailable
from fencepost.leases.stores.sql.backend import LeaseConnection
from fencepost.leases.stores.sql.calls import Calls
from fencepost.leases.stores.sql.endings import SessionEndings
from fencepost.leases.stores.sql.statements import Statements

EVERY_S = 600.0  # nothing here is urgent
_BATCHES = 20  # per round, so that the first one after a long time does not take too long
_DEAD_FOR_US = 60_000_000  # most dead sessions are ended earlier, by a process that wants their locks
_DAY_US = 86_400_000_000


class Tidying:
    """Cleans up at most every ten minutes, in small batches. After a failure, it continues the next time."""

    def __init__(
        self,
        runtime: Runtime,
        calls: Calls,
        *,
        sql: Statements,
        endings: SessionEndings,
        timeout_s: float,
        history_us: int,
    ) -> None:
        self._runtime = runtime
        self._calls = calls
        self._sql = sql
        self._endings = endings
        self._timeout_s = timeout_s
        self._history_us = history_us
        self._next_at = float("-inf")

    def now_and_then(self, *, beside: bool) -> None:
        """Clean up, if it is time: on a separate task (`beside`), or before returning."""
        now = self._runtime.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + EVERY_S
        if beside:
            self._runtime.spawn("fencepost-tidy", self.tidy)
        else:
            self.tidy()

    def forget(self) -> None:
        """In a forked child: forget when the parent cleaned up last."""
        self._next_at = float("-inf")

    def tidy(self) -> None:
        """End sessions that died long ago, prune the history, and remove records of nodes' sessions."""
        with suppress(StoreUnavailable):
            for row in self._calls.run(self._timeout_s, lambda c: c.rows(self._sql.expired, (_DEAD_FOR_US,))):
                self._bury(row[0])
            for work in (self._prune, self._forget):
                for _ in range(_BATCHES):
                    if not self._calls.run(self._timeout_s, work):
                        break

    def _bury(self, session_id: str) -> None:
        self._calls.run(self._timeout_s, lambda c: self._endings.bury(c, session_id, only_watched=True))

    def _prune(self, connection: LeaseConnection) -> int:
        return connection.change(self._sql.prune, (self._history_us,))

    def _forget(self, connection: LeaseConnection) -> int:
        long_us = max(self._history_us, _DAY_US)
        return connection.change(self._sql.forget, (f"{NODE_LEASE}%", long_us, f"{NODE_LEASE}%", long_us))
