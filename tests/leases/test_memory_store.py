"""What the memory store says to sessions that have expired, though nobody has taken what they held."""

from __future__ import annotations

from fencepost.core.grants import Grant, Lost
from fencepost.leases.stores.memory import MemoryStore
from fencepost.threaded import ThreadedRuntime

TTL_S = 10.0


class Clock(ThreadedRuntime):
    """A monotonic clock that is moved by hand."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_a_session_that_expired_is_never_renewed() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    session = store.open("sleeper", ttl_s=TTL_S, call_timeout_s=1.0)
    grant = store.acquire(session, "stock", grant_id="one")
    assert isinstance(grant, Grant)
    clock.now += TTL_S
    assert isinstance(store.renew(session, [grant]), Lost)
    assert store.missing([grant]) == {"one"}


def test_a_session_that_expired_acquires_nothing() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    session = store.open("sleeper", ttl_s=TTL_S, call_timeout_s=1.0)
    clock.now += TTL_S
    assert isinstance(store.acquire(session, "stock", grant_id="one"), Lost)
    assert store.read("stock") is None
