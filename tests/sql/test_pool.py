"""One pool, of lease stores and of the ledger: bounded, nothing is lost, and what nobody needs is closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.core.grants import Grant
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.sql.store import SqlLeaseStore
from fencepost.sql.pool import Pool
from fencepost.threaded import ThreadedRuntime


class SkippingRuntime(ThreadedRuntime):
    skipped_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped_s


def test_heartbeat_closes_connections_that_nobody_has_needed_for_long(tmp_path: Path) -> None:
    runtime = SkippingRuntime()
    store = store_from_url(f"sqlite:///{tmp_path}/leases.db", runtime)
    assert isinstance(store, SqlLeaseStore)
    store.start()
    session = store.open("somebody", ttl_s=600.0, call_timeout_s=1.0)
    grant = store.acquire(session, "nightly", grant_id="g")
    assert isinstance(grant, Grant)
    pool = store._calls.pool
    several = [pool.take(runtime.monotonic() + 5)[0] for _ in range(3)]
    for connection in several:
        pool.give(connection)
    store.renew(session, [grant])
    assert len(pool.open_now()[0]) == 3
    runtime.skipped_s += 60.0
    store.renew(session, [grant])
    assert pool.open_now() == ([], 0)
    assert store.missing([]) == frozenset()  # and another is made when it is needed
    store.shutdown()


def test_session_that_only_waits_keeps_no_connection_for_its_renewals(tmp_path: Path) -> None:
    store = store_from_url(f"sqlite:///{tmp_path}/leases.db", SkippingRuntime())
    assert isinstance(store, SqlLeaseStore)
    store.start()
    session = store.open("somebody", ttl_s=600.0, call_timeout_s=1.0)
    store.renew(session, [])
    assert store.open_now() == ([], 0)
    store.shutdown()


class Made:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def pool_of(runtime: ThreadedRuntime, make=lambda _: Made(), *, limit: int = 1) -> Pool[Made]:
    return Pool(runtime, make, close=Made.close, limit=limit, busy=lambda _: TimeoutError("busy"))


def test_a_place_whose_connection_could_not_be_made_is_free_again() -> None:
    def refuse(left_s: float) -> Made:
        raise ConnectionRefusedError

    runtime = ThreadedRuntime()
    pool = pool_of(runtime, refuse)
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            pool.take(runtime.monotonic() + 1)
    assert pool.open_now() == ([], 0)


def test_who_comes_too_many_is_told_and_what_comes_back_is_used_next() -> None:
    runtime = ThreadedRuntime()
    pool = pool_of(runtime)
    with pool.borrow(1.0) as first, pytest.raises(TimeoutError, match="busy"):
        pool.take(runtime.monotonic() + 0.01)
    with pool.borrow(1.0) as second:
        assert second is first
    assert pool.take(runtime.monotonic())[1]


def test_what_is_in_use_while_the_pool_is_closed_is_closed_when_it_comes_back() -> None:
    runtime = ThreadedRuntime()
    pool = pool_of(runtime, limit=2)
    with pool.borrow(1.0) as used:
        with pool.borrow(1.0) as idle:
            pass
        pool.close()
        assert (idle.is_closed, used.is_closed) == (True, False)
    assert used.is_closed
    assert pool.open_now() == ([], 0)
