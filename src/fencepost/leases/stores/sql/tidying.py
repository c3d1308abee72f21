"""Small housekeeping: history past its time, and sessions that died with nobody waiting for their locks.

The record of a name is kept for ever, since its token must rise. Only those of nodes' sessions go, after the time of
history: an identity is never taken again, and one record per start of every process would stay.
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

EVERY_S = 600.0
_BATCHES = 20
_DEAD_FOR_US = 60_000_000
_DAY_US = 86_400_000_000


class Tidying:
    """Tidies at most every ten minutes, in small batches; failures wait for the next time."""

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
        """Tidy, if it is time; `beside` the caller or before returning to it."""
        now = self._runtime.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + EVERY_S
        if beside:
            self._runtime.spawn("fencepost-tidy", self.tidy)
        else:
            self.tidy()

    def forget(self) -> None:
        """Let a forked child tidy in its own time."""
        self._next_at = float("-inf")

    def tidy(self) -> None:
        """Bury the long dead, prune history, forget the sessions of nodes that are gone."""
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
