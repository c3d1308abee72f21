"""What is ZooKeeper's own: its URLs, its refusals, what stands in it, and how it fails. The rest is in the contract."""

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Transaction
from kazoo.security import CREATOR_ALL_ACL

from fencepost.core.grants import AlreadyDone, Grant, Held, Lost, Renewed, Session
from fencepost.core.tick import Tick
from fencepost.errors import InvalidUrl, StoreRefused, StoreUnavailable
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.zookeeper import ZooKeeperStore, checks
from fencepost.leases.stores.zookeeper import store as zookeeper_store
from fencepost.leases.stores.zookeeper.nodes import ZooKeeperPaths
from fencepost.testing import Stopwatch
from fencepost.threaded import ThreadedRuntime
from testbed import wait
from testbed.proxy import Proxy
from testbed.server import free_port
from testbed.zookeeper import ZooKeeper
from tests.leases.preparing import prepared

RUNTIME = ThreadedRuntime()
TTL_S = 30.0
PATHS = ZooKeeperPaths("/fencepost")

_opened: list[ZooKeeperStore] = []


def store_at(url: str) -> ZooKeeperStore:
    store = store_from_url(url, RUNTIME)
    assert isinstance(store, ZooKeeperStore)
    _opened.append(store)
    return store


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().shutdown()


def session_of(store: ZooKeeperStore, holder: str = "somebody", ttl_s: float = TTL_S) -> Session:
    return store.open(holder, ttl_s=ttl_s, call_timeout_s=20.0)


def take(store: ZooKeeperStore, session: Session, name: str, **wishes) -> Grant:
    outcome = store.acquire(session, name, grant_id=RUNTIME.new_id(), **wishes)
    assert isinstance(outcome, Grant), outcome
    return outcome


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeper]:
    with ZooKeeper() as zookeeper:
        yield zookeeper


@pytest.fixture(scope="module")
def hand(server: ZooKeeper) -> Iterator[KazooClient]:
    """An operator's hand in the nodes."""
    client = KazooClient(f"{server.host}:{server.port}")
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def store(server: ZooKeeper) -> ZooKeeperStore:
    store = store_at(f"{server.url}?call_timeout=20s")  # patient: three seconds are not enough on a busy machine
    store.start()
    return store


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}/{RUNTIME.new_id()[:8]}"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every request that any client makes from now on, by its kind."""
    made: list[str] = []
    call = KazooClient._call

    def noted(self, request, result):
        made.append(type(request).__name__)
        return call(self, request, result)

    monkeypatch.setattr(KazooClient, "_call", noted)
    return made


class TestRoundTrips:
    def test_free_lock_costs_one_round_trip_each_way(
        self, store: ZooKeeperStore, name: str, requests: list[str]
    ) -> None:
        session = session_of(store)
        store.release(take(store, session, name))
        requests.clear()
        store.release(take(store, session, name))
        assert requests == ["Transaction", "Transaction"]

    def test_thousand_grants_are_renewed_in_one_round_trip_and_verified_in_one_pipeline(
        self, store: ZooKeeperStore, name: str, requests: list[str]
    ) -> None:
        session = session_of(store)
        grants = [take(store, session, f"{name}/{number}") for number in range(1000)]
        requests.clear()
        assert store.renew(session, grants) == Renewed()
        assert requests == ["SetData"]
        requests.clear()
        assert store.missing([*grants[1:], replace(grants[0], grant_id="other")]) == {"other"}
        assert requests == ["Sync"] + ["GetData"] * 1000
        assert len([record for record in store.records() if record.name.startswith(name)]) == 1000
        store.close(session)
        assert not any(record.is_held for record in store.records() if record.name.startswith(name))

    def test_acquisition_checks_session_and_era(
        self, store: ZooKeeperStore, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = session_of(store)
        store.release(take(store, session, name))
        multis: list[Transaction] = []
        call = KazooClient._call
        monkeypatch.setattr(KazooClient, "_call", lambda *args: (multis.append(args[1]), call(*args))[1])
        take(store, session, name)
        kinds = [(type(part).__name__, part.path.removeprefix("/fencepost/")) for part in multis[0].operations]
        record = PATHS.record(name).removeprefix("/fencepost/")
        assert [kind for kind, _ in kinds] == ["CheckVersion", "CheckVersion", "SetData", "Create"]
        alive, era, *written = (path for _, path in kinds)
        assert alive == f"sessions/{session.id}"
        assert era.startswith(f"{record}/era-")
        assert written == [record, f"{record}/holder"]


class TestWhatStandsInZooKeeper:
    def test_record_stays_and_holder_is_ephemeral(self, hand: KazooClient, store: ZooKeeperStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        holder, stat = hand.get(PATHS.holder(name))
        assert json.loads(holder)["grant_id"] == grant.grant_id
        assert stat.ephemeralOwner != 0
        store.close(session)
        assert hand.exists(PATHS.holder(name)) is None
        assert hand.exists(PATHS.session(session.id)) is None
        assert json.loads(hand.get(PATHS.record(name))[0])["token"] == grant.token

    def test_name_is_one_node_whatever_it_holds(self, store: ZooKeeperStore) -> None:
        for odd in (".", "..", "a/../b", "a%2Fb", "zookeeper", "holder", "名前🔒", "/"):
            assert "/" not in PATHS.record(odd).removeprefix("/fencepost/leases/")
            assert PATHS.name(PATHS.record(odd).rpartition("/")[2]) == odd
            take(store, session_of(store), odd)

    def test_root_of_the_url_is_created_and_keeps_stores_apart(
        self, server: ZooKeeper, hand: KazooClient, store: ZooKeeperStore, name: str
    ) -> None:
        other = store_at(f"{server.url}/team/a")
        other.start()
        here, there = take(store, session_of(store), name), take(other, session_of(other), name)
        assert hand.exists(ZooKeeperPaths("/team/a").holder(name))
        assert store.missing([here]) == other.missing([there]) == frozenset()
        assert {record.name for record in other.records()} == {name}

    def test_token_follows_the_server_clock(self, store: ZooKeeperStore, name: str) -> None:
        before_us = time.time_ns() // 1000
        session = session_of(store)
        first = take(store, session, name)
        assert before_us - 2000 <= first.token <= time.time_ns() // 1000 + 2000
        store.release(first)
        assert first.token < take(store, session, name).token <= time.time_ns() // 1000 + 2000

    def test_token_rises_over_deletion_at_full_speed(self, hand: KazooClient, store: ZooKeeperStore, name: str) -> None:
        session, last = session_of(store), 0
        for turn in range(30):
            grant = take(store, session, name)
            assert grant.token > last
            last = grant.token
            if turn % 2:
                store.release(grant)
            hand.delete(PATHS.record(name), recursive=True)

    def test_token_of_a_new_record_rests_on_its_creation_not_on_our_idea_of_the_time(
        self, server: ZooKeeper, hand: KazooClient, store: ZooKeeperStore, name: str
    ) -> None:
        last = take(store, session_of(store), name)
        hand.delete(PATHS.record(name), recursive=True)
        late = store_at(server.url)
        session = session_of(late)
        late._clock._latest = (0, 0.0, RUNTIME.monotonic())
        assert take(late, session, name).token > last.token

    def test_memory_of_a_deleted_record_is_not_taken_for_its_successor(
        self, server: ZooKeeper, hand: KazooClient, store: ZooKeeperStore, name: str
    ) -> None:
        mine, other = session_of(store), store_at(server.url)
        theirs = session_of(other)
        stale = take(store, mine, name)
        hand.delete(PATHS.record(name), recursive=True)
        successor = take(other, theirs, name)  # its record has the same version as the one deleted
        assert hand.exists(PATHS.record(name)).version == 1
        assert store.release(stale) is False
        assert other.missing([successor]) == frozenset()
        assert isinstance(store.acquire(mine, name, grant_id="next"), Held)
        other.release(successor)
        assert take(store, mine, name).token > successor.token

    def test_era_deleted_alone_is_put_back(self, hand: KazooClient, store: ZooKeeperStore, name: str) -> None:
        session = session_of(store)

        def delete_era() -> None:
            era = next(node for node in hand.get_children(PATHS.record(name)) if node.startswith("era-"))
            hand.delete(f"{PATHS.record(name)}/{era}")

        grant = take(store, session, name)
        delete_era()
        assert store.release(grant) is True
        delete_era()
        again = take(store, session, name)
        assert again.token > grant.token
        delete_era()
        assert store.revoke(store.read(name)) is True

    def test_root_deleted_by_hand_comes_back(self, server: ZooKeeper, hand: KazooClient) -> None:
        store = store_at(f"{server.url}/short-lived")
        store.start()
        session = session_of(store)
        first = take(store, session, "x")
        hand.delete("/short-lived", recursive=True)
        assert isinstance(store.renew(session, [first]), Lost)
        assert take(store, session_of(store), "x").token > first.token

    def test_foreign_value_is_unavailable_and_not_overwritten(
        self, hand: KazooClient, store: ZooKeeperStore, name: str
    ) -> None:
        hand.create(PATHS.record(name), b"mine")
        with pytest.raises(StoreUnavailable, match=r"not written by Fencepost"):
            store.acquire(session_of(store), name, grant_id="g")
        assert hand.get(PATHS.record(name))[0] == b"mine"
        hand.delete(PATHS.record(name))


class TestVersions:
    def test_a_record_begins_again_before_its_versions_come_round(
        self, hand: KazooClient, server: ZooKeeper, store: ZooKeeperStore, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They have 32 bits, and -1 means any version: two who write at that would both be let in."""
        other = store_at(server.url)
        other.start()
        sessions = [(each, session_of(each)) for each in (store, other)]
        last = take(store, sessions[0][1], name, tick=Tick.of("2026-01-01T00:00Z"))
        assert store.release(last)
        monkeypatch.setattr(zookeeper_store, "MOST_VERSIONS", 4)
        for turn in range(12):
            mine, session = sessions[turn % 2]
            grant = take(mine, session, name)
            assert grant.token > last.token
            assert isinstance(sessions[1 - turn % 2][0].acquire(sessions[1 - turn % 2][1], name, grant_id="x"), Held)
            assert mine.release(grant)
            last = grant
            assert hand.get(PATHS.record(name))[1].version <= 4
        done = store.acquire(sessions[0][1], name, grant_id="y", tick=Tick.of("2026-01-01T00:00Z"))
        assert isinstance(done, AlreadyDone)
        assert len(hand.get_children(PATHS.record(name))) == 1


class TestSessions:
    def test_ttl_is_what_the_server_grants(self, store: ZooKeeperStore) -> None:
        assert session_of(store, ttl_s=5).ttl_s == 5.0
        assert session_of(store, ttl_s=0.1).ttl_s == 0.4, "two ticks at least"
        assert session_of(store, ttl_s=3600).ttl_s == 60.0, "the server's largest, which is less than asked for"

    def test_unrenewed_session_dies_although_the_process_lives(self, store: ZooKeeperStore, name: str) -> None:
        session, next_session = session_of(store, ttl_s=1), session_of(store)
        grant = take(store, session, name)
        held = store.acquire(next_session, name, grant_id="next")
        assert isinstance(held, Held)
        assert held.free_in_s == 1.0
        wait.until(lambda: isinstance(store.acquire(next_session, name, grant_id="next"), Grant), 30)
        assert isinstance(store.renew(session, [grant]), Lost)
        assert store.release(grant) is False
        assert isinstance(store.acquire(session, f"{name}/more", grant_id="more"), Lost)

    def test_nothing_is_taken_on_the_session_that_kazoo_puts_in_place_of_a_lost_one(
        self, hand: KazooClient, store: ZooKeeperStore, name: str
    ) -> None:
        session = session_of(store)
        store.release(take(store, session, name))
        hand.delete(PATHS.session(session.id))  # all that differs between the old session and a new one
        assert isinstance(store.acquire(session, name, grant_id="g"), Lost)
        assert hand.exists(PATHS.holder(name)) is None
        assert isinstance(store.renew(session, []), Lost)

    def test_closing_twice_is_fine(self, store: ZooKeeperStore) -> None:
        session = session_of(store)
        store.close(session)
        store.close(session)
        assert isinstance(store.renew(session, []), Lost)


class TestGrants:
    def test_release_knows_its_grant_by_id_alone(self, server: ZooKeeper, store: ZooKeeperStore, name: str) -> None:
        session, other = session_of(store), store_at(server.url)
        grant = take(store, session, name)
        assert store.release(replace(grant, grant_id="not mine")) is False
        assert store.missing([grant]) == frozenset()
        assert other.release(Grant(name, session, grant.grant_id, token=0)) is True
        assert store.release(grant) is False

    def test_tick_done_elsewhere_is_refused_here(self, server: ZooKeeper, store: ZooKeeperStore, name: str) -> None:
        other = store_at(server.url)
        mine, theirs = session_of(store), session_of(other)
        first, second = Tick.of("2026-01-01T00:00Z"), Tick.of("2026-01-02T00:00Z")
        store.release(take(store, mine, name))
        other.release(take(other, theirs, name, tick=second))
        for tick in (first, second):
            assert store.acquire(mine, name, grant_id="g", tick=tick) == AlreadyDone(name, tick, second.at_us)
        older = take(store, mine, name)
        assert store.release(replace(older, tick=first))
        assert store.read(name).last_tick_us == second.at_us, "the last tick only rises"

    def test_kept_name_outlives_its_process(self, server: ZooKeeper, name: str) -> None:
        store, other = store_at(server.url), store_at(server.url)
        session = session_of(store)
        grant = take(store, session, name)
        released_at = time.monotonic()
        assert store.release(grant, keep_for_s=0.8)
        store.close(session)
        held = other.acquire(their := session_of(other), name, grant_id="next")
        assert held == Held(name, None, grant.token, None, held.free_in_s, is_kept=True)
        assert 0 < held.free_in_s <= 0.85
        record = other.read(name)
        assert (record.is_held, record.token) == (False, grant.token)
        assert 0 < record.free_in_s <= 0.85
        assert other.revoke(record) is False
        while isinstance(held, Held):
            other.wait_change(held, 5)
            held = other.acquire(their, name, grant_id="next")
        assert time.monotonic() - released_at >= 0.8
        assert held.token > grant.token

    def test_revoke_takes_it_from_that_grant_only(self, store: ZooKeeperStore, name: str) -> None:
        session = session_of(store)
        old = take(store, session, name)
        seen = store.read(name)
        store.release(old)
        new = take(store, session, name)
        assert store.revoke(seen) is False
        assert store.revoke(store.read(name)) is True
        assert store.missing([new]) == {new.grant_id}
        assert store.release(new) is False


class TestWaiting:
    def test_release_wakes_all_waiters_at_once(self, server: ZooKeeper, store: ZooKeeperStore, name: str) -> None:
        grant = take(store, session_of(store), name)
        other = store_at(server.url)
        held = other.acquire(session_of(other), name, grant_id="next")
        woken_at: list[float] = []
        waiters = [
            threading.Thread(target=lambda: (other.wait_change(held, 20), woken_at.append(time.monotonic())))
            for _ in range(5)
        ]
        for waiter in waiters:
            waiter.start()
        wait.until(lambda: server.ask("wchs").split()[-1].endswith(b":1"), what="one watch for them all")
        wait.until(lambda: len(other._watches._waiting.get(PATHS.holder(name), ())) == 5)
        released_at = time.monotonic()
        store.release(grant)
        for waiter in waiters:
            waiter.join(30)
        assert max(woken_at) - released_at < 10
        assert not other._watches._waiting
        assert not other._watches._callbacks

    def test_waits_that_ran_out_leave_one_watch_behind(self, store: ZooKeeperStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        held = store.acquire(session, name, grant_id="next")
        for _ in range(5):
            with Stopwatch() as took:
                store.wait_change(held, 0.1)
            assert took.whole_s >= 0.1
            assert took.awake_s < 2
        watchers = store._shared_link._kazoo._data_watchers[PATHS.holder(name)]
        assert len(watchers) == 1
        store.release(grant)
        wait.until(lambda: not store._watches._callbacks)

    def test_change_before_the_wait_is_not_slept_through(self, store: ZooKeeperStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        held = store.acquire(session, name, grant_id="next")
        for change in (lambda: store.release(grant), lambda: take(store, session, name)):
            change()
            asked_at = time.monotonic()
            store.wait_change(held, 20)
            assert time.monotonic() - asked_at < 10

    def test_change_right_after_the_look_is_not_slept_through(self, store: ZooKeeperStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        held = store.acquire(session, name, grant_id="next")
        link = store._shared(RUNTIME.monotonic() + 3)
        ask = link.ask
        link.ask = lambda *args: (ask(*args), store.release(grant))[0]
        asked_at = time.monotonic()
        store.wait_change(held, 20)
        assert time.monotonic() - asked_at < 10

    def test_wait_survives_a_dead_server(self, store: ZooKeeperStore, name: str) -> None:
        session = session_of(store)
        take(store, session, name)
        held = store.acquire(session, name, grant_id="next")
        with Stopwatch() as took:
            store_at(f"zookeeper://127.0.0.1:{free_port()}").wait_change(held, 0.3)
        assert took.whole_s >= 0.2
        assert took.awake_s < 2


class TestTrouble:
    def test_hung_server_is_unavailable_in_time_and_recovers(self, server: ZooKeeper, name: str) -> None:
        with Proxy(server.host, server.port) as proxy:
            store = store_at(f"{proxy.through(server.url)}?call_timeout=500ms")
            session, grant = prepared(store, name, ttl_s=TTL_S, call_timeout_s=0.3)
            doomed = wait.until(lambda: session_of(store), 30, ignoring=(StoreUnavailable,))
            proxy.swallow()
            calls = {
                0.5: [
                    lambda: store.acquire(session, "x", grant_id="x"),
                    lambda: store.release(replace(grant, grant_id="other")),
                    lambda: store.read(name),
                    lambda: list(store.records()),
                    lambda: store.missing([grant]),
                    lambda: store.close(doomed),
                    lambda: session_of(store),
                ],
                0.3: [lambda: store.renew(session, [grant])] * 2,
            }
            for limit_s, some in calls.items():
                for call in some:
                    with Stopwatch() as took, pytest.raises(StoreUnavailable):
                        call()
                    assert took.whole_s >= limit_s * 0.9
                    assert took.awake_s < limit_s + 0.4
            proxy.flow()  # new connections work; those that lost bytes stay mute, and must have been dropped
            wait.until(lambda: store.renew(session, [grant]) == Renewed(), 30, ignoring=(StoreUnavailable,))
            wait.until(lambda: store.missing([grant]) == frozenset(), 30, ignoring=(StoreUnavailable,))
            store.shutdown()

    def test_cut_connection_does_not_show(self, server: ZooKeeper, name: str) -> None:
        with Proxy(server.host, server.port) as proxy:
            store = store_at(proxy.through(server.url))
            session = session_of(store)
            grant = take(store, session, name)
            for call in (lambda: store.renew(session, []) == Renewed(), lambda: store.release(grant)):
                proxy.cut()
                assert call()
            store.shutdown()

    def test_release_that_was_repeated_knows_it_succeeded(self, store: ZooKeeperStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        link = store._sessions[session.id].link
        ask_all = link.ask_all

        def answer_lost_and_repeated(*args):
            link.ask_all = ask_all
            ask_all(*args)
            return ask_all(*args)._replace(repeated=True)

        link.ask_all = answer_lost_and_repeated
        assert store.release(grant) is True

    def test_session_is_closed_although_the_interpreter_begins_no_more_threads(
        self, server: ZooKeeper, store: ZooKeeperStore, name: str
    ) -> None:
        """As Python 3.12 and later do when they run what was registered for the exit."""

        class Ending(ThreadedRuntime):
            is_ending = False

            def spawn(self, name, work):
                if self.is_ending:
                    raise RuntimeError("can't create new thread at interpreter shutdown")
                return super().spawn(name, work)

        runtime = Ending()
        ending = store_from_url(server.url, runtime)
        session = ending.open("somebody", ttl_s=TTL_S, call_timeout_s=20)
        take(ending, session, name)
        runtime.is_ending = True
        ending.close(session)
        assert not store.read(name).is_held
        ending.shutdown()

    def test_release_that_was_repeated_after_another_came_is_unknown(self, store: ZooKeeperStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        link = store._sessions[session.id].link
        ask_all = link.ask_all

        def answer_lost_and_repeated(*args):
            link.ask_all = ask_all
            ask_all(*args)
            take(store, session, name)
            return ask_all(*args)._replace(repeated=True)

        link.ask_all = answer_lost_and_repeated
        with pytest.raises(StoreUnavailable, match="while lock"):
            store.release(grant)
        assert store.release(grant) is False

    def test_killed_server_comes_back_with_sessions_and_grants(self) -> None:
        with ZooKeeper() as server:
            store = store_at(f"{server.url}?call_timeout=500ms")
            session, grant = prepared(store, "kept", ttl_s=TTL_S, call_timeout_s=0.5)
            server.kill()
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    store.renew(session, [grant])
            server.restart()
            wait.until(lambda: store.renew(session, [grant]) == Renewed(), 30, ignoring=(StoreUnavailable,))
            assert wait.until(lambda: not store.missing([grant]), 30, ignoring=(StoreUnavailable,))
            assert store.release(grant)
            assert take(store, session, "kept").token > grant.token
            store.shutdown()

    def test_child_after_fork_has_connections_of_its_own(self, store: ZooKeeperStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                is_lost = isinstance(store.renew(session, []), Lost)
                own = store.open("child", ttl_s=50, call_timeout_s=20)
                is_held = isinstance(store.acquire(own, name, grant_id="child"), Held)
                status = 0 if is_lost and is_held and store.missing([grant]) == frozenset() else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert store.renew(session, [grant]) == Renewed()
        assert store.missing([grant]) == frozenset()


class TestStart:
    def test_unreachable_names_the_servers_quickly(self) -> None:
        one, two = free_port(), free_port()
        unreachable = rf"127\.0\.0\.1:{one},127\.0\.0\.1:{two} cannot be reached"
        with Stopwatch() as took, pytest.raises(StoreUnavailable, match=unreachable):
            store_at(f"zookeeper://127.0.0.1:{one},127.0.0.1:{two}?call_timeout=500ms").start()
        assert took.awake_s < 1.5
        wait.until(lambda: not any("zookeeper" in thread.name for thread in threading.enumerate()))

    def test_callers_do_not_queue_for_a_server_that_is_away(self) -> None:
        store = store_at(f"zookeeper://127.0.0.1:{free_port()}?call_timeout=500ms")
        took_s: list[float] = []

        def call() -> None:
            with Stopwatch() as took, pytest.raises(StoreUnavailable, match="cannot be reached"):
                store.read("x")
            took_s.append(took.awake_s)

        callers = [threading.Thread(target=call) for _ in range(6)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert len(took_s) == 6
        assert max(took_s) < 1.0

    def test_lone_server_is_warned_of(self, store: ZooKeeperStore) -> None:
        assert any("runs standalone" in warning for warning in store.start())

    def test_old_server_is_refused_and_a_silent_one_is_not(self) -> None:
        with pytest.raises(StoreRefused, match=r"3\.4 is too old"):
            checks._doubts_about("Zookeeper version: 3.4.14-4c25d4, built on 2019\nMode: leader")
        assert checks._doubts_about("srvr is not executed because it is not in the whitelist.") == ()

    def test_bad_url_is_refused(self) -> None:
        with pytest.raises(InvalidUrl, match="has no option 'acl'"):
            store_at("zookeeper://h?acl=x")


class TestUsers:
    def test_nodes_of_a_user_are_closed_to_others(self, server: ZooKeeper, name: str) -> None:
        place = f"{server.host}:{server.port}/guarded"
        store = store_at(f"zookeeper://worker:s3cret@{place}")
        store.start()
        session = session_of(store)
        grant = take(store, session, name)
        assert store.renew(session, [grant]) == Renewed()
        for login in ("worker:wrong@", "other:s3cret@", ""):
            with pytest.raises(StoreRefused, match="does not let us write") as refusal:
                store_at(f"zookeeper://{login}{place}").start()
            assert "s3cret" not in str(refusal.value)
            assert "wrong" not in str(refusal.value)
        assert store.release(grant)

    def test_rights_taken_away_are_unavailable_not_held(self, server: ZooKeeper, name: str) -> None:
        store = store_at(f"{server.url}/taken")
        store.start()
        session = session_of(store)
        store.release(take(store, session, name))
        client = KazooClient(f"{server.host}:{server.port}", auth_data=[("digest", "owner:x")])
        client.start()
        client.set_acls(ZooKeeperPaths("/taken").record(name), CREATOR_ALL_ACL)
        client.stop()
        client.close()
        with pytest.raises(StoreUnavailable, match="no right"):
            store.acquire(session, name, grant_id="g")
