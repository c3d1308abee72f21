"""A due time is done once, and `at_least` keeps a lock closed."""

from __future__ import annotations

import pytest

from fencepost.core.grants import AlreadyDone
from fencepost.core.tick import Tick
from fencepost.errors import LockHeld, TickDone
from fencepost.leases.store import LeaseStore
from fencepost.testing.lease_contract.stand import RUNTIME, Connect, Contend, Stand


class TickContract(Stand):
    """A due time is done once, and `at_least` keeps a lock closed."""

    def test_tick_is_done_once(self, connect: Connect, name: str) -> None:
        one, other = connect(), connect()
        due = "2026-01-01T00:00Z"
        with pytest.raises(ZeroDivisionError), one.lock(name, ttl=self.ttl_s, tick=due):
            _ = 1 // 0
        with one.lock(name, ttl=10 * self.ttl_s, tick=due) as lease:  # it failed, so it is still to be done
            with pytest.raises(LockHeld):
                other.lock(name, ttl=self.ttl_s, tick=due).acquire()
            first = lease.token
        for locks in (one, other):
            with pytest.raises(TickDone):
                locks.lock(name, ttl=self.ttl_s, tick=due).acquire()
            with pytest.raises(TickDone):
                locks.lock(name, ttl=self.ttl_s, tick="2025-12-31T23:59:59.999999Z").acquire()
        with other.lock(name, ttl=self.ttl_s, tick="2026-01-01T00:00:00.000001Z") as lease:
            assert lease.token > first
        with other.lock(name, ttl=self.ttl_s):  # without a tick the lock is just a lock
            pass

    def test_tick_at_most_once_is_done_when_taken(self, store: LeaseStore, name: str) -> None:
        session = self.open(store)
        tick = Tick.of("2026-01-01T00:00Z", at_most_once=True)
        grant = self.take(store, session, name, tick=tick)
        assert store.release(grant, done=False)
        again = store.acquire(session, name, grant_id=RUNTIME.new_id(), tick=tick)
        assert again == AlreadyDone(name, tick, tick.at_us)
        record = store.read(name)
        assert record is not None
        assert record.last_tick_us == tick.at_us
        store.close(session)

    def test_at_least_keeps_the_lock_closed(self, connect: Connect, contend: Contend, name: str) -> None:
        contender = contend()
        taken = contender.ask("lock", name=name, ttl=self.ttl_s, at_least=2.0)
        assert contender.ask("release", name=name) == {"released": True}
        contender.kill()  # it stays closed although nobody is left
        other = connect()
        with pytest.raises(LockHeld, match=r"is kept closed for another \d+\.\d s: .*at_least"):
            other.lock(name, ttl=self.ttl_s).acquire()
        with other.lock(name, ttl=self.ttl_s, wait=10) as lease:
            assert lease.token > taken["token"]
            # counted from the grant; a store that counts in whole seconds may round up, never down
            assert RUNTIME.monotonic() - taken["at"] >= 1.9
