"""Failures without notice: a kill, a pause, a wrong clock, a hung connection, a fork."""

from __future__ import annotations

import pytest

from fencepost.core.events import Event, What
from fencepost.errors import LockHeld, StoreUnavailable
from fencepost.testing.lease_contract.stand import HOUR_S, RUNTIME, Connect, Contend, Stand
from fencepost.testing.under_test import StoreUnderTest
from fencepost.testing.waiting import Stopwatch


class Deaths(Stand):
    """Failures without notice: a kill, a pause, a wrong clock, a hung connection, a fork."""

    def test_killed_holder_is_replaced_in_time(self, contend: Contend, name: str) -> None:
        holder, waiter = contend(), contend()
        old = holder.ask("lock", name=name, ttl=self.ttl_s)
        assert waiter.ask("lock", name=name, ttl=self.ttl_s)["held_by"] == old["holder"]
        waiter.send("lock", name=name, ttl=self.ttl_s, wait=10 * self.ttl_s)
        with Stopwatch() as took:
            holder.kill()
            new = waiter.hear()
        assert new["token"] > old["token"]
        assert took.awake_s <= self.ttl_s + self.slack_s

    def test_stopped_holder_is_replaced_and_told_when_it_wakes(self, contend: Contend, name: str) -> None:
        holder, waiter = contend(), contend()
        old = holder.ask("lock", name=name, ttl=self.ttl_s)
        waiter.send("lock", name=name, ttl=self.ttl_s, wait=10 * self.ttl_s)
        holder.stop()
        new = waiter.hear()
        assert new["token"] > old["token"]
        holder.cont()
        assert holder.ask("state", name=name)["lost"] is True
        assert holder.ask("check", name=name)["error"] == "LeaseLost"
        assert holder.ask("release", name=name) == {"released": False}
        assert waiter.ask("check", name=name) == {"ok": True}

    def test_holder_is_not_replaced_while_it_renews(self, connect: Connect, name: str) -> None:
        renewals: list[Event] = []
        one = connect(observer=lambda event: renewals.append(event) if event.what is What.RENEWED else None)
        with one.lock(name, ttl=self.ttl_s) as lease:
            with pytest.raises(LockHeld):
                connect().lock(name, ttl=self.ttl_s, wait=2 * self.ttl_s).acquire()
            assert len(renewals) >= 3
            lease.check()

    def test_clock_an_hour_off_changes_nothing(self, contend: Contend, name: str) -> None:
        ahead, behind, right = contend(wall_offset_s=HOUR_S), contend(wall_offset_s=-HOUR_S), contend()
        first = ahead.ask("lock", name=name, ttl=self.ttl_s)
        assert behind.ask("lock", name=name, ttl=self.ttl_s)["held_by"] == first["holder"]
        assert right.ask("lock", name=name, ttl=self.ttl_s, wait=self.ttl_s)["held_by"] == first["holder"]
        assert ahead.ask("release", name=name) == {"released": True}
        second = behind.ask("lock", name=name, ttl=self.ttl_s, wait=10 * self.ttl_s)
        assert second["token"] > first["token"]
        assert ahead.ask("lock", name=name, ttl=self.ttl_s)["held_by"] == second["holder"]
        right.send("lock", name=name, ttl=self.ttl_s, wait=10 * self.ttl_s)
        with Stopwatch() as took:
            behind.kill()
            third = right.hear()
        assert third["token"] > second["token"]
        assert took.awake_s <= self.ttl_s + self.slack_s

    def test_hung_connection_ends_trust_on_time(self, server: StoreUnderTest, connect: Connect, name: str) -> None:
        with server.fault() as fault:
            locks = connect(fault.store)
            lease = locks.lock(name, ttl=self.ttl_s).acquire()
            lost = RUNTIME.event()
            told_at: list[float] = []
            lease.on_lost(lambda _: told_at.append(RUNTIME.monotonic()))
            lease.on_lost(lambda _: lost.set())
            fault.hang()
            hung_at = RUNTIME.monotonic()
            with Stopwatch() as took:
                assert lost.wait(10 * self.ttl_s), "the loss was not reported to the holder"
            assert took.awake_s <= self.ttl_s + self.slack_s / 4
            assert lease.lost
            assert told_at[0] >= lease.trusted_until
            assert lease.trusted_until < hung_at + self.ttl_s, "trust went on after the store went silent"
            fault.heal()
            locks.close()

    def test_hung_store_does_not_hang_its_callers(self, server: StoreUnderTest, connect: Connect, name: str) -> None:
        with server.fault() as fault:
            locks = connect(fault.store)
            with locks.lock(f"{name}/warm", ttl=self.ttl_s):
                pass
            fault.hang()
            with Stopwatch() as took, pytest.raises(StoreUnavailable):
                locks.lock(name, ttl=self.ttl_s).acquire()
            assert took.awake_s <= 2 * 3.0 + self.slack_s
            fault.heal()
            locks.close()

    def test_forked_child_has_lost_the_lease_and_reconnects(self, contend: Contend, name: str) -> None:
        answer = contend().ask("fork", name=name, ttl=4 * self.ttl_s)
        assert answer.get("inherited_is_lost") is True, answer
        assert answer["own_token"] > 0
        assert answer["child"] != answer["parent"]
        assert answer["parent_holds"] is True
