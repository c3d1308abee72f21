"""What every lease store must do, as tests against its real server.

Derive a class per store, name it in `store_name`, and provide a fixture `server` that yields a `StoreUnderTest`::

    @pytest.fixture(scope="module")
    def server(): ...

    class TestRedis(LeaseStoreContract):
        store_name = "redis"

Every test states one promise. Contenders are processes that are really killed and stopped (threads, for a store
that lives in one process). Nothing waits by sleeping: tests wait for what they expect, with a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fencepost.core.events import Event, What
from fencepost.core.grants import AlreadyDone, Grant, Held, Lost, Session
from fencepost.core.tick import Tick
from fencepost.errors import LeaseLost, LockHeld, StoreUnavailable, TickDone
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.leases.store import KeepsHistory, LeaseStore
from fencepost.testing.contenders import Contender, ProcessContender, ThreadContender
from fencepost.testing.faulty import FaultyStore
from fencepost.testing.under_test import StoreUnderTest
from fencepost.testing.waiting import until
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()
HOUR_S = 3600.0
RACERS = 8

Connect = Callable[..., Locks]
Contend = Callable[..., Contender]


class LeaseStoreContract:
    """Derive from it; see the module's docstring."""

    store_name: ClassVar[str]
    ttl_s: ClassVar[float] = 3.0
    rounds_per_racer: ClassVar[int] = 12
    slack_s: ClassVar[float] = 2.0  # how late a loaded machine may be; never how early

    # -- what the tests stand on ---------------------------------------------------------------------------------

    @pytest.fixture
    def name(self, request: pytest.FixtureRequest) -> str:
        """Return a lock name nobody has used."""
        return f"{request.node.name}/{RUNTIME.new_id()[:8]}"

    @pytest.fixture
    def store(self, server: StoreUnderTest) -> Iterator[LeaseStore]:
        """Yield the bare store, with no keeper that renews."""
        store = store_from_url(server.url, RUNTIME)
        store.start()
        yield store
        store.shutdown()

    @pytest.fixture
    def connect(self, server: StoreUnderTest) -> Iterator[Connect]:
        """Yield a function that connects as one more node; all are closed at the end."""
        with ExitStack() as stack:

            def connect(store: LeaseStore | None = None, observer: Callable[[Event], None] | None = None) -> Locks:
                locks = Locks(
                    store or store_from_url(server.url, RUNTIME),
                    runtime=RUNTIME,
                    observers=[observer] if observer else [],
                )
                stack.callback(locks.close)
                locks.start()
                return locks

            yield connect

    @pytest.fixture
    def contend(self, server: StoreUnderTest, store: LeaseStore) -> Iterator[Contend]:
        """Yield a function that starts a contender; none survives the test."""
        kind = ThreadContender if store.capabilities.scope == "process" else ProcessContender
        with ExitStack() as stack:

            def contend(**options: Any) -> Contender:
                contender = kind(server.url, **options)
                stack.callback(contender.end)
                return contender

            yield contend

    def open(self, store: LeaseStore, holder: str = "somebody") -> Session:
        """Open a session that nobody renews."""
        return store.open(holder, ttl_s=self.ttl_s, call_timeout_s=self.ttl_s / 3)

    def take(self, store: LeaseStore, session: Session, name: str, **wishes: Any) -> Grant:
        """Acquire, expecting to get it."""
        outcome = store.acquire(session, name, grant_id=RUNTIME.new_id(), **wishes)
        assert isinstance(outcome, Grant), outcome
        return outcome

    # -- exclusion -----------------------------------------------------------------------------------------------

    def test_racing_contenders_lose_no_update(self, contend: Contend, name: str, tmp_path: Path) -> None:
        counter = tmp_path / "counter"
        counter.write_text("")
        racers = [contend() for _ in range(RACERS)]
        for racer in racers:
            racer.tell("race", name=name, counter=str(counter), rounds=self.rounds_per_racer, ttl=10 * self.ttl_s)
        answers = [racer.hear(deadline_s=100) for racer in racers]
        written = [int(token) for token in counter.read_text().split()]
        assert len(written) == RACERS * self.rounds_per_racer, "an update was lost: two were inside at once"
        assert written == sorted(set(written)), "tokens did not rise in the order of the holders"
        assert sorted(token for answer in answers for token in answer["tokens"]) == written

    def test_held_lock_is_refused_and_says_by_whom(self, connect: Connect, name: str) -> None:
        one, other = connect(), connect()
        with one.lock(name, ttl=self.ttl_s) as lease:
            assert other.try_lock(name, ttl=self.ttl_s) is None
            with pytest.raises(LockHeld) as refusal:
                other.lock(name, ttl=self.ttl_s).acquire()
            assert refusal.value.holder == one.holder
            record = other.read(name)
            assert record is not None
            assert (record.holder, record.token, record.grant_id) == (one.holder, lease.token, lease.grant_id)
        freed = other.read(name)
        assert freed is not None
        assert not freed.is_held
        with other.lock(name, ttl=self.ttl_s) as next_lease:
            assert next_lease.token > lease.token

    def test_names_are_kept_apart_exactly(self, store: LeaseStore, name: str) -> None:
        session = self.open(store)
        odd = ["a/b", "a.b", "a%2Fb", "a b", "A/B", "é", "e\u0301", "{x}", "it's; --", "#?&=*\\", "x" * 200, "名前🔒"]
        names = [f"{suffix}{name}"[:200] for suffix in odd]
        grants = {each: self.take(store, session, each) for each in names}
        assert len(grants) == len(odd)
        assert store.missing(list(grants.values())) == frozenset()
        listed = {record.name for record in store.records() if record.is_held}
        assert listed >= set(names)
        assert store.read("never taken") is None
        store.close(session)

    # -- tokens --------------------------------------------------------------------------------------------------

    def test_token_rises_over_a_thousand_grants(self, connect: Connect, name: str) -> None:
        one, other = connect(), connect()
        last = 0
        for turn in range(1000):
            with (one, other)[turn % 2].lock(name, ttl=10 * self.ttl_s) as lease:
                assert lease.token > last
                last = lease.token
        assert last < 2**53

    def test_token_rises_over_deletion_of_the_record(self, server: StoreUnderTest, connect: Connect, name: str) -> None:
        one, other = connect(), connect()
        last = 0
        for turn in range(30):
            with (one, other)[turn % 2].lock(name, ttl=10 * self.ttl_s) as lease:
                assert lease.token > last
                last = lease.token
            if turn % 3 == 2:
                server.forget(name)

    def test_token_rises_over_a_crash_of_the_server(self, server: StoreUnderTest, connect: Connect, name: str) -> None:
        locks = connect()
        with locks.lock(name, ttl=10 * self.ttl_s) as lease:
            before = lease.token
        server.restart()
        fresh = connect()
        with fresh.lock(name, ttl=10 * self.ttl_s, wait=30) as lease:
            assert lease.token > before
            before = lease.token
        with locks.lock(name, ttl=10 * self.ttl_s, wait=30) as lease:  # the old connection mends itself
            assert lease.token > before

    def test_holder_survives_a_crash_of_the_server_or_is_told(
        self, server: StoreUnderTest, connect: Connect, name: str
    ) -> None:
        locks = connect()
        lease = locks.lock(name, ttl=10 * self.ttl_s).acquire()
        server.restart()

        def answered() -> str | None:
            try:
                lease.check()
            except LeaseLost:
                return "lost"
            except StoreUnavailable:
                return None
            return "held"

        verdict = until(answered, 10 * self.ttl_s, "the store answers again")
        successor = connect().try_lock(name, ttl=10 * self.ttl_s)
        assert (verdict == "held") == (successor is None)
        assert lease.lost == (verdict == "lost")
        if successor is not None:
            assert successor.token > lease.token

    def test_floor_lifts_the_token(self, store: LeaseStore, name: str) -> None:
        session = self.open(store)
        first = self.take(store, session, name)
        assert store.release(first)
        lifted = self.take(store, session, name, floor=first.token + 10**9)
        assert lifted.token == first.token + 10**9
        assert store.release(lifted)
        assert self.take(store, session, name).token == lifted.token + 1
        store.close(session)

    # -- grant ids: what is repeated, and what came late -----------------------------------------------------------

    def test_repeated_acquire_returns_the_same_grant(self, server: StoreUnderTest, name: str) -> None:
        with server.fault() as fault:
            store = fault.store
            store.start()
            session = store.open("somebody", ttl_s=60, call_timeout_s=1)
            grant_id = RUNTIME.new_id()
            self.take(store, session, f"{name}/warm")
            fault.lose_replies()
            with pytest.raises(StoreUnavailable):
                store.acquire(session, name, grant_id=grant_id)
            fault.heal()
            got = until(lambda: self.answer(store, session, name, grant_id), 20, "the store answers again")
            if isinstance(got, Held):  # the session itself hung on the connection, and so does not outlive it
                session = store.open("somebody", ttl_s=60, call_timeout_s=1)
                got = until(lambda: self.granted(store, session, name, grant_id), 20, "the old session is gone")
            assert isinstance(got, Grant)
            assert store.acquire(session, name, grant_id=grant_id) == got
            record = store.read(name)
            assert record is not None
            assert (record.token, record.grant_id) == (got.token, grant_id)
            store.shutdown()

    @staticmethod
    def answer(store: LeaseStore, session: Session, name: str, grant_id: str) -> object:
        """Ask once; None when there was no answer."""
        try:
            return store.acquire(session, name, grant_id=grant_id)
        except StoreUnavailable:
            return None

    @classmethod
    def granted(cls, store: LeaseStore, session: Session, name: str, grant_id: str) -> Grant | None:
        """Ask once; None unless it was granted."""
        outcome = cls.answer(store, session, name, grant_id)
        return outcome if isinstance(outcome, Grant) else None

    def test_unanswered_acquire_blocks_nobody_for_ever(
        self, server: StoreUnderTest, connect: Connect, name: str
    ) -> None:
        with server.fault() as fault:
            unlucky = connect(fault.store)
            with unlucky.lock(f"{name}/warm", ttl=10):
                pass
            fault.lose_replies()
            with pytest.raises(StoreUnavailable):
                unlucky.lock(name, ttl=10).acquire()
            fault.heal()
            with connect().lock(name, ttl=10, wait=30) as lease:
                lease.check()
            unlucky.close()

    def test_lost_grant_can_neither_be_renewed_nor_released(self, store: LeaseStore, name: str) -> None:
        sleeper = self.open(store, "sleeper")
        old = self.take(store, sleeper, name)
        successor_session: list[Session] = []

        def taken() -> Grant | None:
            if not successor_session:
                successor_session.append(store.open("successor", ttl_s=60, call_timeout_s=1))
            return self.granted(store, successor_session[0], name, new_id)

        new_id = RUNTIME.new_id()
        # a store that sees its holder's connection keeps the session alive by itself: end it as its death would
        if not self.expires_unrenewed(store, sleeper, old):
            store.close(sleeper)
        new = until(taken, self.ttl_s + self.slack_s, "the successor gets the lock")
        assert new.token > old.token
        renewal = store.renew(sleeper, [old])
        assert isinstance(renewal, Lost) or old.grant_id in renewal.gone
        assert store.release(old) is False
        assert store.missing([old, new]) == {old.grant_id}
        record = store.read(name)
        assert record is not None
        assert (record.grant_id, record.token) == (new.grant_id, new.token)
        assert not isinstance(store.renew(new.session, [new]), Lost)
        store.close(new.session)

    def expires_unrenewed(self, store: LeaseStore, session: Session, grant: Grant) -> bool:
        """Whether the session ends when nobody renews it, although this process lives."""
        return True

    # -- ends that nobody announces --------------------------------------------------------------------------------

    def test_killed_holder_is_replaced_in_time(self, contend: Contend, name: str) -> None:
        holder, waiter = contend(), contend()
        old = holder.ask("lock", name=name, ttl=self.ttl_s)
        assert waiter.ask("lock", name=name, ttl=self.ttl_s)["held_by"] == old["holder"]
        waiter.tell("lock", name=name, ttl=self.ttl_s, wait=10 * self.ttl_s)
        killed_at = RUNTIME.monotonic()
        holder.kill()
        new = waiter.hear()
        assert new["token"] > old["token"]
        assert new["at"] - killed_at <= self.ttl_s + self.slack_s

    def test_stopped_holder_is_replaced_and_told_when_it_wakes(self, contend: Contend, name: str) -> None:
        holder, waiter = contend(), contend()
        old = holder.ask("lock", name=name, ttl=self.ttl_s)
        waiter.tell("lock", name=name, ttl=self.ttl_s, wait=10 * self.ttl_s)
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
        second = behind.ask("lock", name=name, ttl=self.ttl_s, wait=1)
        assert second["token"] > first["token"]
        assert ahead.ask("lock", name=name, ttl=self.ttl_s)["held_by"] == second["holder"]
        right.tell("lock", name=name, ttl=self.ttl_s, wait=10 * self.ttl_s)
        killed_at = RUNTIME.monotonic()
        behind.kill()
        third = right.hear()
        assert third["token"] > second["token"]
        assert third["at"] - killed_at <= self.ttl_s + self.slack_s

    def test_hung_connection_ends_trust_on_time(self, server: StoreUnderTest, connect: Connect, name: str) -> None:
        with server.fault() as fault:
            locks = connect(fault.store)
            lease = locks.lock(name, ttl=self.ttl_s).acquire()
            told = RUNTIME.event()
            told_at: list[float] = []
            lease.on_lost(lambda _: told_at.append(RUNTIME.monotonic()))
            lease.on_lost(lambda _: told.set())
            fault.hang()
            hung_at = RUNTIME.monotonic()
            assert told.wait(self.ttl_s + self.slack_s), "nobody told the holder"
            assert lease.lost
            assert told_at[0] >= lease.trusted_until
            assert told_at[0] - lease.trusted_until <= self.slack_s / 4
            assert lease.trusted_until < hung_at + self.ttl_s, "trust went on after the store went silent"
            fault.heal()
            locks.close()

    def test_hung_store_does_not_hang_its_callers(self, server: StoreUnderTest, connect: Connect, name: str) -> None:
        with server.fault() as fault:
            locks = connect(fault.store)
            with locks.lock(f"{name}/warm", ttl=self.ttl_s):
                pass
            fault.hang()
            asked_at = RUNTIME.monotonic()
            with pytest.raises(StoreUnavailable):
                locks.lock(name, ttl=self.ttl_s).acquire()
            assert RUNTIME.monotonic() - asked_at <= 2 * 3.0 + self.slack_s
            fault.heal()
            locks.close()

    def test_forked_child_has_lost_the_lease_and_reconnects(self, contend: Contend, name: str) -> None:
        told = contend().ask("fork", name=name, ttl=4 * self.ttl_s)
        assert told.get("inherited_is_lost") is True, told
        assert told["own_token"] > 0
        assert told["child"] != told["parent"]
        assert told["parent_holds"] is True

    # -- ticks and at-least ----------------------------------------------------------------------------------------

    def test_tick_is_done_once(self, connect: Connect, name: str) -> None:
        one, other = connect(), connect()
        due = "2026-01-01T00:00Z"
        with pytest.raises(ZeroDivisionError), one.lock(name, ttl=self.ttl_s, tick=due):
            _ = 1 // 0
        with one.lock(name, ttl=self.ttl_s, tick=due) as lease:  # it failed, so it is still to be done
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
        assert other.try_lock(name, ttl=self.ttl_s) is None
        with other.lock(name, ttl=self.ttl_s, wait=10) as lease:
            assert lease.token > taken["token"]
            # counted from the grant; a store that counts in whole seconds may round up, never down
            assert RUNTIME.monotonic() - taken["at"] >= 1.9

    # -- waiting, elections, operators -------------------------------------------------------------------------------

    def test_waiter_gets_a_released_lock(self, connect: Connect, contend: Contend, name: str) -> None:
        one = connect()
        lease = one.lock(name, ttl=10 * self.ttl_s).acquire()
        waiter = contend()
        assert "held_by" in waiter.ask("lock", name=name, ttl=self.ttl_s)
        waiter.tell("lock", name=name, ttl=self.ttl_s, wait=10 * self.ttl_s)
        with pytest.raises(AssertionError, match="did not answer"):
            waiter.hear(deadline_s=0.3)
        released_at = RUNTIME.monotonic()
        assert lease.release()
        got = waiter.hear()
        assert got["token"] > lease.token
        assert got["at"] - released_at <= self.slack_s

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
        until(lambda: first.is_leader and calls, 10, "the first candidate leads")
        second = other.election(name, ttl=self.ttl_s, on_elected=lambda lease: calls.append(("other", lease.token)))
        until(lambda: second.leader == one.holder, 10, "the second candidate knows its leader")
        assert not second.is_leader
        assert first.resign("maintenance")
        assert not first.is_leader
        until(lambda: second.is_leader and len(calls) == 3, self.ttl_s + self.slack_s, "the second candidate leads")
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
        told = RUNTIME.event()
        lease.on_lost(lambda _: told.set())
        revoked = operator.revoke(name)
        assert revoked is not None
        assert revoked.grant_id == lease.grant_id
        assert told.wait(2 * self.ttl_s), "the holder was not told within two ttls"
        assert lease.lost
        assert operator.revoke(name) is None
        with operator.lock(name, ttl=self.ttl_s) as next_lease:
            assert next_lease.token > lease.token

    def test_closing_frees_everything_at_once(self, connect: Connect, name: str) -> None:
        one, other = connect(), connect()
        leases = [one.lock(f"{name}/{each}", ttl=10 * self.ttl_s).acquire() for each in range(3)]
        one.close()
        for lease in leases:
            with other.lock(lease.name, ttl=self.ttl_s, wait=self.slack_s) as next_lease:
                assert next_lease.token > lease.token
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
        # a ttl that leaves time to take them all before the first renewals are counted
        leases = [one.lock(f"{name}/{each}", ttl=self.ttl_s).acquire() for each in range(300)]
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
