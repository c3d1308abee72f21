"""A release that is on its way when nothing else hangs on its session; on virtual time."""

from __future__ import annotations

import pytest

from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable
from fencepost.leases.locks import Locks
from fencepost.leases.stores.memory import MemoryStore
from fencepost.testing.simulation.hub import Hub, Process
from fencepost.testing.simulation.runtime import Clock, SimRuntime, StoreRuntime


class SlowStore(MemoryStore):
    """Takes two seconds for a release, and does not answer whoever asks for the lock "doubtful"."""

    def acquire(self, session, name, **more):
        outcome = super().acquire(session, name, **more)
        if name == "doubtful":
            raise StoreUnavailable("the reply was lost")
        return outcome

    def release(self, grant, **more):
        if grant.name != "doubtful":
            self._runtime.sleep(2.0)
        return super().release(grant, **more)


def test_a_retired_session_is_not_closed_over_a_release_that_is_on_its_way():
    hub, process = Hub(seed=1), Process("p", 1)
    store = SlowStore(StoreRuntime(hub, process, Clock(hub)))
    locks = Locks(store, runtime=SimRuntime(hub, process, Clock(hub)))
    tick = Tick.of("2026-01-01T00:00Z")
    said = []

    def work() -> None:
        lease = locks.lock("job", ttl="3s", tick=tick).acquire()
        with pytest.raises(StoreUnavailable):
            locks.lock("doubtful", ttl="3s").acquire()
        said.append(lease.release(done=True))

    hub.spawn(process, "work", work)
    hub.run(10.0)
    hub.over()
    assert said == [True]
    assert store.read("job").last_tick_us == tick.at_us
