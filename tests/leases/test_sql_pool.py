"""The pool of an SQL store: what nobody needs is closed, by whoever comes or by the next heartbeat."""

from __future__ import annotations

from pathlib import Path

from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.sql.store import SqlLeaseStore
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
    pool = store._calls.pool
    several = [pool.take(runtime.monotonic() + 5)[0] for _ in range(3)]
    for connection in several:
        pool.give(connection)
    store.renew(session, [])
    assert len(pool.open_now()[0]) == 3
    runtime.skipped_s += 60.0
    store.renew(session, [])
    assert pool.open_now() == ([], 0)
    assert store.missing([]) == frozenset()  # and another is made when it is needed
    store.shutdown()
