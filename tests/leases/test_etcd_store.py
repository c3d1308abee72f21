"""What is etcd's own: its URLs, its refusals, what stands in it, and how it fails. The rest is in the contract."""

import json
import os
import socket
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fencepost.core.grants import AlreadyDone, Grant, Held, Lost, Renewed, Session
from fencepost.core.tick import Tick
from fencepost.errors import InvalidUrl, StoreRefused, StoreUnavailable
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.etcd import EtcdStore
from fencepost.leases.stores.etcd.client import Client
from fencepost.leases.stores.etcd.clock import EtcdClock
from fencepost.leases.urls import StoreUrl
from fencepost.testing import Stopwatch
from fencepost.threaded import ThreadedRuntime
from testbed import wait
from testbed.etcd import Etcd, EtcdCluster
from testbed.proxy import Proxy
from testbed.server import free_port
from tests.leases.preparing import prepared

RUNTIME = ThreadedRuntime()
TTL_S = 60.0


_opened: list[EtcdStore] = []


def store_at(url: str) -> EtcdStore:
    store = store_from_url(url, RUNTIME)
    assert isinstance(store, EtcdStore)
    _opened.append(store)
    return store


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().shutdown()


def session_of(store: EtcdStore, holder: str = "somebody", ttl_s: float = TTL_S) -> Session:
    return store.open(holder, ttl_s=ttl_s, call_timeout_s=20.0)


def take(store: EtcdStore, session: Session, name: str, **wishes) -> Grant:
    outcome = store.acquire(session, name, grant_id=RUNTIME.new_id(), **wishes)
    assert isinstance(outcome, Grant), outcome
    return outcome


@pytest.fixture(scope="module")
def server() -> Iterator[Etcd]:
    with Etcd() as etcd:
        yield etcd


@pytest.fixture
def store(server: Etcd) -> EtcdStore:
    store = store_at(server.url)
    store.start()
    return store


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}/{RUNTIME.new_id()[:8]}"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every request that any client makes from now on, by its method."""
    made: list[str] = []
    call = Client.call
    monkeypatch.setattr(Client, "call", lambda self, method, *rest: (made.append(method), call(self, method, *rest))[1])
    return made


def value(server: Etcd, key: str) -> str | None:
    kvs = server.call("kv/range", {"key": b64encode(key.encode()).decode()}).get("kvs", [])
    return b64decode(kvs[0]["value"]).decode() if kvs else None


def delete(server: Etcd, key: str) -> None:
    server.call("kv/deleterange", {"key": b64encode(key.encode()).decode()})


class TestRoundTrips:
    def test_free_lock_costs_one_round_trip_each_way(self, store: EtcdStore, name: str, requests: list[str]) -> None:
        session = session_of(store)
        store.release(take(store, session, name))
        requests.clear()
        store.release(take(store, session, name))
        assert requests == ["kv/txn", "kv/txn"]

    def test_thousand_grants_are_renewed_in_one_round_trip_and_verified_in_ten(
        self, store: EtcdStore, name: str, requests: list[str]
    ) -> None:
        session = session_of(store)
        grants = [take(store, session, f"{name}/{number}") for number in range(1000)]
        requests.clear()
        assert store.renew(session, grants) == Renewed()
        assert requests == ["lease/keepalive"]
        requests.clear()
        assert store.missing([*grants[1:], replace(grants[0], grant_id="other")]) == {"other"}
        assert requests == ["kv/txn"] * 10
        assert len([record for record in store.records() if record.name.startswith(name)]) == 1000
        store.close(session)
        assert not any(record.is_held for record in store.records() if record.name.startswith(name))

    def test_renewals_have_connections_of_their_own(self, server: Etcd, name: str) -> None:
        with Proxy(server.host, server.port) as proxy:
            store = store_at(proxy.through(server.url))
            session = session_of(store)
            assert proxy.connections == 1
            assert store.renew(session, []) == Renewed()
            assert proxy.connections == 2
            for _ in range(5):
                store.renew(session, [])
            assert proxy.connections == 2, "a renewal's connection is used again"
            store.shutdown()


class TestWhatStandsInEtcd:
    def test_record_stays_and_holder_hangs_on_the_session(self, server: Etcd, store: EtcdStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        record = json.loads(value(server, f"/fencepost/lease/{name}"))
        assert (record["token"], record["holder"], record["grant_id"]) == (grant.token, "somebody", grant.grant_id)
        assert value(server, f"/fencepost/holder/{name}").startswith(f"{grant.grant_id} {{")
        store.close(session)
        assert value(server, f"/fencepost/holder/{name}") is None
        assert json.loads(value(server, f"/fencepost/lease/{name}"))["token"] == grant.token

    def test_prefix_of_the_url_keeps_stores_apart(self, server: Etcd, store: EtcdStore, name: str) -> None:
        other = store_at(f"{server.url}/team/a")
        here, there = take(store, session_of(store), name), take(other, session_of(other), name)
        assert value(server, f"/team/a/holder/{name}").startswith(there.grant_id)
        assert store.missing([here]) == other.missing([there]) == frozenset()
        assert {record.name for record in other.records()} == {name}

    def test_token_is_the_server_clock_and_the_revision(self, server: Etcd, store: EtcdStore, name: str) -> None:
        before_s = int(time.time())
        token = take(store, session_of(store), name).token
        revision = int(server.call("maintenance/status")["header"]["revision"])
        assert before_s <= token // 1_000_000 <= time.time()
        assert 0 < token % 1_000_000 <= revision

    def test_token_rises_when_the_record_is_deleted_while_held(self, server: Etcd, store: EtcdStore, name: str) -> None:
        session, other = session_of(store), store_at(server.url)
        last = 0
        for _ in range(20):
            grant = take(store, session, name)
            assert grant.token > last
            delete(server, f"/fencepost/lease/{name}")
            held = other.acquire(session_of(other), name, grant_id="x")
            assert isinstance(held, Held)
            assert held.token == grant.token
            assert store.release(grant)
            last = grant.token

    def test_token_does_not_fall_when_an_older_answer_comes_late(
        self, server: Etcd, store: EtcdStore, name: str
    ) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        store.release(grant)
        delete(server, f"/fencepost/lease/{name}")
        look = store._look

        def look_and_be_overtaken(*args):
            seen = look(*args)
            store._client.clock.read("Thu, 01 Jan 2026 00:00:00 GMT", 1)
            return seen

        store._look = look_and_be_overtaken
        store._known.clear()
        assert take(store, session, name).token > grant.token

    def test_foreign_value_is_unavailable_and_not_overwritten(self, server: Etcd, store: EtcdStore, name: str) -> None:
        key = b64encode(f"/fencepost/lease/{name}".encode()).decode()
        server.call("kv/put", {"key": key, "value": b64encode(b"mine").decode()})
        with pytest.raises(StoreUnavailable, match=r"not Fencepost's"):
            store.acquire(session_of(store), name, grant_id="g")
        assert value(server, f"/fencepost/lease/{name}") == "mine"
        delete(server, f"/fencepost/lease/{name}")


class TestSessions:
    def test_ttl_is_rounded_up_to_whole_seconds(self, store: EtcdStore) -> None:
        assert session_of(store, ttl_s=4.2).ttl_s == 5.0
        assert session_of(store, ttl_s=0.3).ttl_s >= 2.0

    def test_unrenewed_session_is_lost_and_takes_nothing_more(self, store: EtcdStore, name: str) -> None:
        session, next_session = session_of(store, ttl_s=2), session_of(store)
        grant = take(store, session, name)
        held = store.acquire(next_session, name, grant_id="next")
        assert isinstance(held, Held)
        wait.until(lambda: isinstance(store.acquire(next_session, name, grant_id="next"), Grant), 30)
        assert isinstance(store.renew(session, [grant]), Lost)
        assert store.release(grant) is False
        assert isinstance(store.acquire(session, f"{name}/more", grant_id="more"), Lost)

    def test_closing_twice_is_fine(self, store: EtcdStore) -> None:
        session = session_of(store)
        store.close(session)
        store.close(session)
        assert isinstance(store.renew(session, []), Lost)


class TestGrants:
    def test_release_knows_its_grant_by_id_alone(self, store: EtcdStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        assert store.release(replace(grant, grant_id=grant.grant_id[:-1])) is False
        assert store.release(replace(grant, grant_id=f"{grant.grant_id}0")) is False
        assert store.missing([grant]) == frozenset()
        assert store.release(Grant(name, session, grant.grant_id, token=0)) is True
        assert store.release(grant) is False

    def test_stale_memory_is_corrected_in_the_same_call(self, server: Etcd, store: EtcdStore, name: str) -> None:
        other = store_at(server.url)
        mine, theirs = session_of(store), session_of(other)
        last = 0
        for _ in range(5):
            for some, session in ((store, mine), (other, theirs)):
                grant = take(some, session, name)
                assert grant.token > last
                last = grant.token
                assert some.release(grant)

    def test_tick_done_elsewhere_is_refused_here(self, server: Etcd, store: EtcdStore, name: str) -> None:
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

    def test_kept_name_outlives_its_process(self, server: Etcd, name: str) -> None:
        store, other = store_at(server.url), store_at(server.url)
        session = session_of(store)
        grant = take(store, session, name)
        assert store.release(grant, keep_for_s=2)
        store.close(session)
        released_at = time.monotonic()
        held = other.acquire(their := session_of(other), name, grant_id="next")
        assert held == Held(name, None, grant.token, None, held.free_in_s, is_kept=True)
        assert 0 < held.free_in_s <= 2
        record = other.read(name)
        assert (record.is_held, record.token, record.free_in_s) == (False, grant.token, pytest.approx(2, abs=1))
        assert other.revoke(record) is False
        while isinstance(held, Held):
            other.wait_change(held, 5)
            held = other.acquire(their, name, grant_id="next")
        assert time.monotonic() - released_at >= 1.0
        assert held.token > grant.token

    def test_refused_release_keeps_nothing(self, server: Etcd, store: EtcdStore, name: str) -> None:
        grant = take(store, session_of(store), name)
        leases = len(server.call("lease/leases").get("leases", []))
        assert store.release(replace(grant, grant_id="not mine"), keep_for_s=30) is False
        assert len(server.call("lease/leases").get("leases", [])) == leases

    def test_revoke_takes_it_from_that_grant_only(self, store: EtcdStore, name: str) -> None:
        session = session_of(store)
        old = take(store, session, name)
        seen = store.read(name)
        store.release(old)
        new = take(store, session, name)
        assert store.revoke(seen) is False
        assert store.revoke(store.read(name)) is True
        assert store.missing([new]) == {new.grant_id}


class TestWaiting:
    def test_release_wakes_a_waiter_at_once(self, server: Etcd, store: EtcdStore, name: str) -> None:
        grant = take(store, session_of(store), name)
        other = store_at(server.url)
        held = other.acquire(session_of(other), name, grant_id="next")
        woken_at: list[float] = []
        waiter = threading.Thread(target=lambda: (other.wait_change(held, 20), woken_at.append(time.monotonic())))
        waiter.start()
        wait.until(lambda: _watchers(server) > 0)
        released_at = time.monotonic()
        store.release(grant)
        waiter.join(30)
        assert woken_at[0] - released_at < 10
        wait.until(lambda: _watchers(server) == 0, what="the watch's connection is closed")

    def test_change_before_the_wait_is_not_slept_through(self, store: EtcdStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        held = store.acquire(session, name, grant_id="next")
        store.release(grant)
        take(store, session, name)
        asked_at = time.monotonic()
        store.wait_change(held, 20)
        assert time.monotonic() - asked_at < 10

    def test_change_between_look_and_watch_is_not_slept_through(self, store: EtcdStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        held = store.acquire(session, name, grant_id="next")
        watch = store._watch
        store._watch = lambda *args: (store.release(grant), watch(*args))
        asked_at = time.monotonic()
        store.wait_change(held, 20)
        assert time.monotonic() - asked_at < 10

    def test_wait_ends_on_time_and_survives_a_dead_server(self, server: Etcd, store: EtcdStore, name: str) -> None:
        take(store, session_of(store), name)
        held = store.acquire(session_of(store), name, grant_id="next")
        for waiting in (store, store_at(f"etcd://127.0.0.1:{free_port()}")):
            with Stopwatch() as took:
                waiting.wait_change(held, 0.3)
            assert took.whole_s >= 0.1
            assert took.awake_s < 2


def _watchers(server: Etcd) -> int:
    import urllib.request

    with urllib.request.urlopen(f"{server.endpoint}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return int(float(next(line for line in lines if line.startswith("etcd_debugging_mvcc_watcher_total")).split()[1]))


class TestTrouble:
    def test_hung_server_is_unavailable_in_time(self, server: Etcd, name: str) -> None:
        with Proxy(server.host, server.port) as proxy:
            store = store_at(f"{proxy.through(server.url)}?call_timeout=500ms")
            session, grant = prepared(store, name, ttl_s=TTL_S, call_timeout_s=0.3)
            proxy.swallow()
            calls = {
                0.5: [lambda: store.acquire(session, "x", grant_id="x"), lambda: store.release(grant),
                      lambda: store.read(name), lambda: list(store.records()), lambda: store.missing([grant]),
                      lambda: store.close(session), lambda: session_of(store), store.start],
                0.3: [lambda: store.renew(session, [grant])] * 2,
            }  # fmt: skip
            for limit_s, some in calls.items():
                for call in some:
                    with Stopwatch() as took, pytest.raises(StoreUnavailable):
                        call()
                    assert took.whole_s >= limit_s * 0.9
                    assert took.awake_s < limit_s + 0.4
            proxy.flow()  # new connections work; those that lost bytes stay mute, and must have been dropped
            store._renewal_timeout_s.clear()
            assert store.renew(session, [grant]) == Renewed()
            assert store.missing([grant]) == frozenset()
            store.shutdown()

    def test_closed_idle_connections_do_not_show(self, server: Etcd, name: str) -> None:
        with Proxy(server.host, server.port) as proxy:
            store = store_at(proxy.through(server.url))
            session = session_of(store)
            grant = take(store, session, name)
            store.renew(session, [])
            proxy.cut()
            assert store.renew(session, []) == Renewed()
            proxy.cut()
            assert store.release(grant) is True
            store.shutdown()

    def test_release_that_was_repeated_knows_it_succeeded(self, server: Etcd, store: EtcdStore, name: str) -> None:
        grant = take(store, session_of(store), name)
        call = store._client.call

        def answer_lost_and_repeated(method, body, *rest):
            call(method, body, *rest)
            return replace(call(method, body, *rest), repeated=True)

        store._client.call = answer_lost_and_repeated
        assert store.release(grant) is True

    def test_answers_without_a_date_do_not_set_the_clock_back(
        self, server: Etcd, store: EtcdStore, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        read = EtcdClock.read
        monkeypatch.setattr(EtcdClock, "read", lambda self, date, revision: read(self, "", revision))
        delete(server, f"/fencepost/holder/{name}")
        delete(server, f"/fencepost/lease/{name}")
        assert abs(take(store, session, name).token - grant.token) < 60_000_000
        with pytest.raises(StoreRefused, match="Date"):
            store_at(server.url).start()

    def test_slow_resolver_does_not_prolong_a_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Drivers resolve names without a timeout, and try each address of a name with the whole of it."""
        resolver = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolver.wait(5))
        with Stopwatch() as took, pytest.raises(StoreUnavailable, match="in time"):
            store_at("etcd://slow.example?call_timeout=300ms").read("x")
        assert took.awake_s < 1
        resolver.set()

    def test_release_that_was_repeated_after_another_came_is_unknown(self, store: EtcdStore, name: str) -> None:
        session = session_of(store)
        grant, call = take(store, session, name), store._client.call

        def answer_lost_and_repeated(method, body, *rest):
            store._client.call = call
            call(method, body, *rest)
            heir = take(store, session, name)
            answer = replace(call(method, body, *rest), repeated=True)
            assert store.missing([heir]) == frozenset()
            return answer

        store._client.call = answer_lost_and_repeated
        with pytest.raises(StoreUnavailable, match="while lock"):
            store.release(grant)
        assert store.release(grant) is False

    def test_killed_server_comes_back_with_its_grants(self) -> None:
        with Etcd() as server:
            store = store_at(server.url)
            session = session_of(store)
            grant = take(store, session, "kept")
            server.kill()
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                store.renew(session, [grant])
            server.restart()
            assert store.renew(session, [grant]) == Renewed()
            assert store.missing([grant]) == frozenset()
            assert store.release(grant)
            assert take(store, session, "kept").token > grant.token
            store.shutdown()

    def test_next_endpoint_is_asked_when_one_is_gone_or_hangs(self) -> None:
        with EtcdCluster() as cluster:
            store = store_at(f"{cluster.url}?call_timeout=1500ms")
            assert not any("single member" in warning for warning in store.start())
            session = store.open("somebody", ttl_s=TTL_S, call_timeout_s=1.0)
            grant = take(store, session, "x")
            cluster.nodes[0].kill()
            wait.until(lambda: store.renew(session, [grant]), 30, ignoring=(StoreUnavailable,))
            wait.until(lambda: not store.missing([grant]), 30, ignoring=(StoreUnavailable,))
            cluster.nodes[0].restart()
            cluster.nodes[1].pause()
            assert wait.until(lambda: store.renew(session, [grant]), 30, ignoring=(StoreUnavailable,)) == Renewed()
            assert wait.until(lambda: store.release(grant), 30, ignoring=(StoreUnavailable,))
            assert wait.until(lambda: take(store, session, "x"), 30, ignoring=(StoreUnavailable,)).token > grant.token
            store.shutdown()

    def test_child_after_fork_has_connections_of_its_own(self, store: EtcdStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = (
                    0 if store.missing([grant]) == frozenset() and not store._client.renewals._members[0]._idle else 2
                )
            finally:
                os._exit(status)
        assert store.missing([grant]) == frozenset()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert store.renew(session, [grant]) == Renewed()


class TestStart:
    def test_unreachable_names_the_endpoints(self) -> None:
        one, two = free_port(), free_port()
        with pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1:{one}, 127\.0\.0\.1:{two}: cannot be reached"):
            store_at(f"etcd://127.0.0.1:{one},127.0.0.1:{two}").start()

    def test_single_member_is_warned_of(self, store: EtcdStore) -> None:
        assert any("single member" in warning for warning in store.start())

    def test_version_with_inconsistent_data_is_warned_of(self) -> None:
        with Etcd(debian=False) as server:
            store = store_at(server.url)
            assert any("issue 13766" in warning for warning in store.start())
            session = session_of(store)
            grant = take(store, session, "on 3.5")
            assert store.renew(session, [grant]) == Renewed()
            assert store.release(grant)
            store.shutdown()

    def test_something_else_is_refused(self) -> None:
        from testbed.valkey import Valkey

        with Valkey() as server, pytest.raises((StoreRefused, StoreUnavailable)):
            store_at(f"etcd://{server.host}:{server.port}").start()

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("etcd://h?cas=x", "has no option 'cas'"),
            ("etcd://h?ca=x", "needs etcds://"),
            ("etcds://h?cert=x", "go together"),
            ("etcds://h?ca=/nowhere", "cannot be used"),
        ],
    )
    def test_bad_url_is_refused(self, url: str, message: str) -> None:
        with pytest.raises(InvalidUrl, match=message):
            store_at(url)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Etcd]:
    with Etcd(users={"worker": "s3cret"}) as server:
        yield server


class TestUsers:
    def test_user_of_the_url_is_logged_in_and_again_when_the_token_is_void(self, guarded: Etcd) -> None:
        store = store_at(guarded.url)
        store.start()
        session = session_of(store)
        grant = take(store, session, "x")
        store._client._headers = {**store._client._headers, "Authorization": "expired.1"}
        assert store.release(grant) is True
        store._client._headers = {**store._client._headers, "Authorization": "expired.1"}
        assert store.renew(session, []) == Renewed()
        grant = take(store, session, "x")
        held = store.acquire(session, "x", grant_id="y")
        asked_at = time.monotonic()
        store._client._headers = {**store._client._headers, "Authorization": "expired.1"}
        release = threading.Timer(0.3, lambda: store.release(grant))
        release.start()
        store.wait_change(held, 20)
        assert time.monotonic() - asked_at < 10
        release.join()
        store.shutdown()

    @pytest.mark.parametrize("login", ["worker:wrong@", "nobody:s3cret@", ""])
    def test_bad_login_is_refused_without_showing_the_password(self, guarded: Etcd, login: str) -> None:
        with pytest.raises(StoreRefused) as refusal:
            store_at(f"etcd://{login}{guarded.host}:{guarded.port}").start()
        assert "s3cret" not in str(refusal.value)
        assert "wrong" not in str(refusal.value)

    def test_user_who_may_only_read_is_refused(self, guarded: Etcd) -> None:
        token = guarded.call("auth/authenticate", {"name": "root", "password": "root"})["token"]
        key, end = (b64encode(text).decode() for text in (b"/fencepost/", b"/fencepost0"))
        guarded.call("auth/role/add", {"name": "reader"}, token=token)
        perm = {"permType": "READ", "key": key, "range_end": end}
        guarded.call("auth/role/grant", {"name": "reader", "perm": perm}, token=token)
        guarded.call("auth/user/add", {"name": "reader", "password": "r"}, token=token)
        guarded.call("auth/user/grant", {"user": "reader", "role": "reader"}, token=token)
        with pytest.raises(StoreRefused, match=r"permission denied.*rights"):
            store_at(f"etcd://reader:r@{guarded.host}:{guarded.port}").start()

    def test_needless_user_is_warned_of(self, server: Etcd) -> None:
        warnings = store_at(f"etcd://worker:x@{server.host}:{server.port}").start()
        assert any("authentication is off" in warning for warning in warnings)


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Etcd]:
    with Etcd(mutual=True) as server:
        yield server


class TestTls:
    def url(self, server: Etcd, **options: object) -> str:
        query = "&".join(f"{name}={file}" for name, file in options.items())
        return f"etcds://{server.host}:{server.port}?{query}"

    def test_certificates_of_the_url_are_used(self, encrypted: Etcd) -> None:
        store = store_at(self.url(encrypted, ca=encrypted.ca_file, cert=encrypted.cert_file, key=encrypted.key_file))
        store.start()
        session = session_of(store)
        assert store.release(take(store, session, "x"))
        assert store.renew(session, []) == Renewed()
        store.shutdown()

    def test_trouble_is_a_sentence(self, encrypted: Etcd, server: Etcd) -> None:
        with pytest.raises(StoreRefused, match=r"TLS failed: CERTIFICATE_VERIFY_FAILED.*check the options ca"):
            store_at(self.url(encrypted)).start()
        # A server that hangs up hard may reset the connection before its reason has been read.
        hung_up = (StoreRefused, StoreUnavailable)
        with pytest.raises(hung_up, match=r"TLS failed|Connection reset"):
            store_at(self.url(encrypted, ca=encrypted.ca_file)).start()
        with pytest.raises((StoreRefused, StoreUnavailable), match=r"wants TLS"):
            store_at(f"etcd://{encrypted.host}:{encrypted.port}").start()
        with pytest.raises(hung_up, match=r"TLS failed: .*etcds:// against etcd://|Connection reset"):
            store_at(self.url(server)).start()


def test_url_without_port_means_the_usual_one() -> None:
    client = Client(StoreUrl.parse("etcd://one,two:99"), RUNTIME)
    assert client.calls.addresses == "one:2379, two:99"
