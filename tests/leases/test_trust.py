"""From when a session is trusted: from before the store was asked, however long its answer took."""

from __future__ import annotations

from collections.abc import Collection

from fencepost.core.grants import Grant, Lost, Renewed, Session
from fencepost.core.timings import Timings
from fencepost.leases.keeper import Keeper
from fencepost.leases.stores.memory import MemoryStore
from fencepost.threaded import ThreadedRuntime

TIMINGS = Timings.of("30s")
WAY_S = 2.0


class Clock(ThreadedRuntime):
    """A monotonic clock that is moved by hand."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Slow(MemoryStore):
    """A store that answers seconds after it was asked."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._clock = clock

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        session = super().open(holder, ttl_s=ttl_s, call_timeout_s=call_timeout_s)
        self._clock.now += WAY_S
        return session

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        outcome = super().renew(session, grants)
        self._clock.now += WAY_S
        return outcome


def test_trust_in_a_session_counts_from_before_it_was_asked_for_and_renewed() -> None:
    clock = Clock()
    keeper = Keeper(store=Slow(clock), runtime=clock, timings=TIMINGS, holder="me", emit=lambda _: None)
    kept = keeper._open()
    try:
        assert kept.trusted_until == 1000.0 + TIMINGS.trust_s
        clock.now = 1005.0
        kept._renew()
        assert kept.trusted_until == 1005.0 + TIMINGS.trust_s
    finally:
        kept.close()
        keeper.close()
