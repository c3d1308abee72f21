"""Waiting, elections, revocation, closing, and many locks on one session."""

from __future__ import annotations

import pytest

from fencepost.core.events import Event, What
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.leases.store import KeepsHistory, LeaseStore
from fencepost.testing.faulty import FaultyStore
from fencepost.testing.lease_contract.stand import RUNTIME, Connect, Contend, Stand
from fencepost.testing.under_test import StoreUnderTest
from fencepost.testing.waiting import Stopwatch, until


class Operation(Stand):
    """Waiting, elections, revocation, closing, and many locks on one session."""

    def test_waiter_gets_a_released_lock(self, connect: Connect, contend: Contend, name: str) -> None:
        one = connect()
        lease = one.lock(name, ttl=10 * self.ttl_s).acquire()
        waiter = contend()
        assert "held_by" in waiter.ask("lock", name=name, ttl=self.ttl_s)
        waiter.send("lock", name=name, ttl=self.ttl_s, wait=10 * self.ttl_s)
        with pytest.raises(AssertionError, match="did not answer"):
            waiter.hear(deadline_s=0.3)
        with Stopwatch() as took:
            assert lease.release()
            got = waiter.hear()
        assert got["token"] > lease.token
        assert took.awake_s <= self.slack_s

    def test_election_hands_over_and_is_recorded(self, connect: Connect, name: str) -> None:
        heard: list[Event] = []
        one, other = connect(observer=heard.append), connect(observer=heard.append)
        calls: list[tuple[str, int]] = []
        first = one.election(
            name,
            ttl=self.ttl_s,
            on_elected=lambda lease: calls.append(("one elected", lease.token)),
            on_lost=lambda lease: calls.append(("one lost", lease.token)),
        )
        until(lambda: first.is_leader and calls, 30, "the first candidate leads")
        second = other.election(name, ttl=self.ttl_s, on_elected=lambda lease: calls.append(("other", lease.token)))
        until(lambda: second.leader == one.holder, 30, "the second candidate knows its leader")
        assert not second.is_leader
        assert first.resign("maintenance")
        assert not first.is_leader
        with Stopwatch() as took:
            until(lambda: second.is_leader and len(calls) == 3, 30, "the second candidate leads")
        assert took.awake_s <= self.ttl_s + self.slack_s
        assert [what for what, _ in calls] == ["one elected", "one lost", "other"]
        assert calls[0][1] == calls[1][1] < calls[2][1]
        changes = [event for event in heard if event.what is What.LEADER_CHANGED and event.holder == other.holder]
        assert changes
        assert changes[0].previous_holder == one.holder
        resigned = [event for event in heard if event.what is What.RESIGNED]
        assert [event.reason for event in resigned] == ["maintenance"]
        if isinstance(store := store_of(one), KeepsHistory):
            past = store.history(name, limit=10)
            assert [(row.holder, row.token, row.why) for row in past] == [(one.holder, calls[0][1], "released")]
            assert past[0].acquired_at_us <= past[0].ended_at_us
        first.stop()
        second.stop()

    def test_revoked_holder_is_told(self, connect: Connect, name: str) -> None:
        holder, operator = connect(), connect()
        lease = holder.lock(name, ttl=self.ttl_s).acquire()
        lost = RUNTIME.event()
        lease.on_lost(lambda _: lost.set())
        revoked = operator.revoke(name)
        assert revoked is not None
        assert revoked.grant_id == lease.grant_id
        with Stopwatch() as took:
            assert lost.wait(10 * self.ttl_s), "the loss was not reported to the holder"
        assert took.awake_s <= 2 * self.ttl_s, "the loss was not reported within two ttls"
        assert lease.lost
        assert operator.revoke(name) is None
        with operator.lock(name, ttl=self.ttl_s) as next_lease:
            assert next_lease.token > lease.token

    def test_closing_frees_everything_at_once(self, connect: Connect, name: str) -> None:
        one, other = connect(), connect()
        leases = [one.lock(f"{name}/{each}", ttl=10 * self.ttl_s).acquire() for each in range(3)]
        one.close()
        for lease in leases:
            with Stopwatch() as took, other.lock(lease.name, ttl=self.ttl_s, wait=self.ttl_s) as next_lease:
                assert next_lease.token > lease.token
            assert took.awake_s <= self.slack_s
        assert all(lease.lost for lease in leases)

    def test_hundreds_of_locks_hang_on_one_session(self, server: StoreUnderTest, connect: Connect, name: str) -> None:
        counting = FaultyStore(store_from_url(server.url, RUNTIME))
        renewed = RUNTIME.event()
        renewals: list[Event] = []

        def note(event: Event) -> None:
            if event.what is What.RENEWED:
                renewals.append(event)
                if len(renewals) >= 5:
                    renewed.set()

        one = connect(counting, observer=note)
        locks = [one.lock(f"{name}/{each}", ttl=10 * self.ttl_s, renew_every=self.ttl_s / 3) for each in range(300)]
        leases = [lock.acquire() for lock in locks]
        renewals.clear()
        calls_before = counting.calls.get("renew", 0)
        assert renewed.wait(10 * self.ttl_s)
        assert counting.calls["open"] == 1, "one session serves them all"
        assert counting.calls["renew"] - calls_before <= len(renewals) + 1, "one renewal serves them all"
        assert not any(lease.lost for lease in leases)
        assert counting.missing([lease.grant for lease in leases]) == frozenset()
        assert connect().try_lock(leases[-1].name, ttl=self.ttl_s) is None
        one.close()


def store_of(locks: Locks) -> LeaseStore:
    """Return the store behind `locks`."""
    return locks._store
