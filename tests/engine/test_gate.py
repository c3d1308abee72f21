"""The gate: runs with an exclusive key also hold a lease in another store, and nobody holds one for longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fencepost.core.runs import StopReason
from fencepost.engine.gate import Gate
from fencepost.leases.lease import Lease
from fencepost.leases.locks import Locks
from fencepost.leases.stores.memory import MemoryStore
from fencepost.ledger import claiming
from fencepost.ledger.ledger import Ledger
from fencepost.testing import Stopwatch, until
from fencepost.testing.faulty import FaultyStore
from fencepost.threaded import ThreadedRuntime
from tests.engine.exchange_stand import Stand
from tests.ledger.scene import tick

RUNTIME = ThreadedRuntime()
CALL_TIMEOUT_S = 0.3


class Gated(Stand):
    """An exchange with a gate, and the same store as others see it."""

    def __init__(self, ledger: Ledger, **policy: object) -> None:
        self.store = FaultyStore(MemoryStore(RUNTIME), CALL_TIMEOUT_S)
        self.locks = Locks(self.store, runtime=RUNTIME)
        self.locks.start()
        self.others = Locks(self.store, runtime=RUNTIME)
        self._elsewhere: list[Lease] = []
        gate = Gate(self.locks, runtime=RUNTIME, ttl="4s", on_lost=self._lost, emit=lambda event: None)
        super().__init__(ledger, gate=gate, **policy)

    def _lost(self, run_id: int, token: int) -> None:
        if any((each.run_id, each.token) == (run_id, token) for each in self.runner.held):
            self.runner.stop(run_id, token, StopReason.LOST)

    def hold_elsewhere(self, key: str) -> Lease:
        lease = self.others.lock(key, ttl="60s").acquire()
        self._elsewhere.append(lease)
        return lease

    def is_held(self, key: str) -> bool:
        record = self.locks.read(key)
        return record is not None and record.is_held

    def states(self, *run_ids: int) -> list[str]:
        return self.scene.states(run_ids)

    def close(self) -> None:
        super().close()
        self.store.heal()
        self.locks.close()
        self.others.close()


@pytest.fixture
def make(ledger: Ledger) -> Iterator[Callable[..., Gated]]:
    made: list[Gated] = []

    def one(**policy: object) -> Gated:
        made.append(Gated(ledger, **policy))
        return made[-1]

    yield one
    for each in made:
        each.close()


@pytest.fixture
def gated(make: Callable[..., Gated]) -> Gated:
    return make()


def test_run_holds_the_lease_of_its_key_until_it_has_ended(gated: Gated) -> None:
    [run_id] = gated.add(exclusive_key="k")
    gated.settle()
    assert gated.is_held("k")
    assert [each.token for each in gated.runner.held] == [gated.locks.read("k").token]
    gated.runner.end_all()
    gated.settle()
    assert not gated.is_held("k")
    assert gated.states(run_id) == ["succeeded"]


def test_key_that_is_held_elsewhere_keeps_its_run_queued_and_nobody_else_s(gated: Gated) -> None:
    elsewhere = gated.hold_elsewhere("k")
    kept, free, keyed = (*gated.add(exclusive_key="k"), *gated.add(), *gated.add(exclusive_key="l"))
    gated.settle()
    assert gated.states(kept, free, keyed) == ["queued", "running", "running"]
    elsewhere.release()
    until(lambda: gated.settle() and gated.states(kept) == ["running"], 30, "the key is free, and its run starts")


def test_many_keys_that_are_held_elsewhere_starve_none_behind_them(gated: Gated) -> None:
    for number in range(30):
        gated.hold_elsewhere(f"held{number:02}")
        gated.add(exclusive_key=f"held{number:02}", priority=5)
    [behind] = gated.add(exclusive_key="zz")
    gated.runner.slots = 2
    gated.for_a_while(1.0)
    assert gated.states(behind) == ["running"]


def test_tick_whose_key_is_taken_in_the_ledger_is_skipped(make: Callable[..., Gated]) -> None:
    gated = make(type="scheduled")
    now_us = gated.scene.now_us()
    [first] = gated.scene.add(tick("s", now_us - 2000, exclusive_key="k")._replace(job="work"))
    gated.settle()
    [second] = gated.scene.add(tick("s", now_us - 1000, exclusive_key="k")._replace(job="work"))
    gated.node.hint()
    gated.for_a_while(1.0)
    assert gated.states(first, second) == ["running", "skipped"]


def test_newer_run_has_the_holder_of_its_key_stopped(make: Callable[..., Gated]) -> None:
    gated = make(overlap="replace")
    [first] = gated.add(exclusive_key="k")
    gated.settle()
    [second] = gated.add(exclusive_key="k")
    gated.node.hint()
    gated.for_a_while(10.0)
    assert (first, StopReason.CANCELLED) in [(run_id, why) for run_id, _, why in gated.runner.stopped]
    assert gated.states(second) == ["waiting"]
    gated.runner.end_all("cancelled")
    gated.for_a_while(1.0)
    assert gated.states(first, second) == ["cancelled", "running"]


def test_lease_that_is_lost_stops_its_run_which_is_run_again(gated: Gated) -> None:
    [run_id] = gated.add(exclusive_key="k")
    gated.settle()
    [first] = gated.runner.held
    assert gated.others.revoke("k") is not None
    until(lambda: gated.runner.stopped, 30, "it is stopped")
    assert gated.runner.stopped == [(run_id, first.token, StopReason.LOST)]
    gated.runner.end(first, "lost")
    until(lambda: gated.settle() and gated.runner.held, 30, "it runs again")
    [again] = gated.runner.held
    assert (again.run_id, again.attempt) == (run_id, 2)
    assert again.token > first.token
    assert gated.is_held("k")


def test_lease_that_is_lost_before_the_run_was_handed_over_stops_it_all_the_same(gated: Gated) -> None:
    [run_id] = gated.add(exclusive_key="k")
    opened = gated.exchange._gate.open

    def lose_at_once(wanted) -> dict[str, int]:
        tokens = opened(wanted)
        for lease in gated.exchange._gate._held.values():
            lease.end("revoked in between")
        return tokens

    gated.exchange._gate.open = lose_at_once
    gated.settle()
    assert [(each, why) for each, _, why in gated.runner.stopped] == [(run_id, StopReason.LOST)]


def test_node_that_loses_its_identity_lets_go_of_its_keys(gated: Gated) -> None:
    [run_id] = gated.add(exclusive_key="k")
    gated.settle()
    gated.lose()
    gated.runner.end_all("lost")
    gated.be("second")
    gated.for_a_while(1.0)
    assert [(each.run_id, each.attempt) for each in gated.runner.held] == [(run_id, 2)]
    gated.runner.end_all()
    gated.settle()
    assert not gated.is_held("k")


def test_store_that_does_not_answer_delays_only_runs_with_a_key(gated: Gated) -> None:
    keyed = [*gated.add(exclusive_key="a"), *gated.add(exclusive_key="b"), *gated.add(exclusive_key="c")]
    gated.runner.slots = 50
    gated.store.hang()
    free = gated.add(count=3)
    with Stopwatch() as took:
        gated.settle()
        for _ in range(10):
            free += gated.add()
            gated.node.hint()
            gated.settle()
    assert set(gated.states(*free)) == {"running"}
    assert set(gated.states(*keyed)) == {"queued"}
    assert took.awake_s < 6 * CALL_TIMEOUT_S
    gated.store.heal()
    until(lambda: gated.settle() and set(gated.states(*keyed)) == {"running"}, 20, "the store is back")


def test_claim_that_the_ledger_did_not_answer_leaves_no_lease_behind(gated: Gated) -> None:
    gated.settle()
    gated.add(exclusive_key="k")
    gated.exchange._gate.open(
        claiming.keys_wanted(gated.scene.connection, jobs=("work",), queues=("default",), limit=5)
    )
    assert gated.is_held("k")
    gated.node.hint()
    gated.settle()
    until(lambda: gated.settle() and gated.runner.held, 30, "it is claimed with a fresh lease")
    gated.runner.end_all()
    gated.settle()
    assert not gated.is_held("k")


def test_key_that_the_store_cannot_keep_stops_nobody_else(gated: Gated) -> None:
    poison, free, keyed = (*gated.add(exclusive_key="k\n"), *gated.add(), *gated.add(exclusive_key="l"))
    gated.settle()
    assert gated.states(poison, free, keyed) == ["queued", "running", "running"]
