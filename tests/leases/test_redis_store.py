"""What is particular to leases on Redis and Valkey, against the real server. The contract is tested elsewhere."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from fencepost.core.grants import AlreadyDone, Grant, Held, Lost, Renewed, Session
from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.redis.store import REMEMBER_MS, SCRIPT_KEYS, RedisStore
from fencepost.leases.stores.redis.wire import Wire
from fencepost.testing import SkewedRuntime, Stopwatch
from fencepost.threaded import ThreadedRuntime
from testbed import wait
from testbed.proxy import Proxy
from testbed.valkey import Sentinels, Valkey
from tests.leases.preparing import prepared

RUNTIME = ThreadedRuntime()
SLACK_S = 0.5
TICK = Tick.of("2026-01-01T00:00Z")

Connect = Callable[..., RedisStore]


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with Valkey() as running:
        yield running


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Sentinels]:
    with Sentinels() as running:
        yield running


@pytest.fixture
def connect(server: Valkey) -> Iterator[Connect]:
    """Connect a store, to the common server unless told otherwise; all are shut down at the end."""
    with ExitStack() as open_stores:

        def make(url: str = server.url, runtime: ThreadedRuntime = RUNTIME) -> RedisStore:
            store = store_from_url(url, runtime)
            assert isinstance(store, RedisStore)
            open_stores.callback(store.shutdown)
            return store

        yield make


@pytest.fixture
def store(connect: Connect, server: Valkey) -> RedisStore:
    with server.client() as client:
        client.flushall()
    store = connect()
    store.start()
    return store


@pytest.fixture
def session(store: RedisStore) -> Session:
    return open_session(store)


def open_session(store: RedisStore, ttl_s: float = 30.0, call_timeout_s: float = 1.0) -> Session:
    return store.open("host:1:abc", ttl_s=ttl_s, call_timeout_s=call_timeout_s)


def take(store: RedisStore, session: Session, name: str, **options: Any) -> Grant:
    got = store.acquire(session, name, grant_id=RUNTIME.new_id(), **options)
    assert isinstance(got, Grant), got
    return got


def refused(store: RedisStore, name: str) -> Held:
    """What a contender is told."""
    got = store.acquire(open_session(store), name, grant_id=RUNTIME.new_id())
    assert isinstance(got, Held), got
    return got


def shorten(server: Valkey, grant: Grant) -> None:
    """Let a first grant end ten seconds after it began, as if it had been given earlier."""
    with server.client() as client:
        client.hset(f"fencepost:{{{grant.name}}}", "expires_at_us", grant.token + 10_000_000)


def measured(work: Callable[[], object]) -> Stopwatch:
    with Stopwatch() as took:
        work()
    return took


def unanswered(call: Callable[[], object]) -> None:
    with pytest.raises(StoreUnavailable, match="did not answer within"):
        call()


class LeapingRuntime(ThreadedRuntime):
    """A machine that slept for a while."""

    slept_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.slept_s


class Aside:
    """Work in a thread beside the test; `result()` waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._outcome: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._outcome.append(work()), daemon=True)
        self._thread.start()

    def result(self, deadline_s: float = 30.0) -> Any:
        self._thread.join(deadline_s)
        assert self._outcome, "the work beside the test did not end, or failed"
        return self._outcome[0]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry per time that anything is sent to the server and its answer awaited."""
    log: list[int] = []
    original = Wire.send_packed_command

    def count(self: Wire, command: Any, check_health: bool = True) -> None:
        log.append(len(b"".join(command)))
        original(self, command, check_health=check_health)

    monkeypatch.setattr(Wire, "send_packed_command", count)
    return log


class TestRecord:
    def test_is_one_hash_with_exact_numbers(self, store: RedisStore, session: Session, server: Valkey) -> None:
        grant = take(store, session, "a", tick=TICK)
        with server.client() as client:
            fields = client.hgetall("fencepost:{a}")
            assert client.ttl("fencepost:{a}") == -1, "a record that is held must not expire as a key"
        assert fields.pop("token") == str(grant.token)
        assert fields.pop("acquired_at_us") == str(grant.token), (
            "a first token is the server's time, to the microsecond"
        )
        assert fields.pop("expires_at_us") == str(grant.token + 30_000_000)
        assert fields == {"grant_id": grant.grant_id, "session_id": session.id, "holder": "host:1:abc"}

    def test_is_remembered_for_thirty_days_after_release(
        self, store: RedisStore, session: Session, server: Valkey
    ) -> None:
        store.release(take(store, session, "a"))
        store.release(take(store, session, "b"), keep_for_s=40 * 86400)
        with server.client() as client:
            assert 0 <= REMEMBER_MS - client.pttl("fencepost:{a}") < 10_000
            assert client.pttl("fencepost:{b}") > 40 * 86400 * 1000, "a name must not open before its time"
            take(store, session, "a")
            assert client.ttl("fencepost:{a}") == -1

    def test_reads_as_free_once_released_or_expired(self, store: RedisStore, session: Session) -> None:
        grant = take(store, session, "a", tick=TICK)
        record = store.read("a")
        assert record is not None
        assert (record.grant_id, record.session_id, record.holder) == (grant.grant_id, session.id, "host:1:abc")
        assert record.free_in_s == pytest.approx(30, abs=5)
        store.release(grant)
        take(store, open_session(store, ttl_s=0.2), "b")
        released = store.read("a")
        assert released is not None
        assert (released.is_held, released.free_in_s, released.token) == (False, None, grant.token)
        assert released.last_tick_us == TICK.at_us
        wait.until(lambda: not store.read("b").is_held, 30)  # type: ignore[union-attr]

    def test_names_and_prefixes_are_kept_apart(
        self, connect: Connect, store: RedisStore, session: Session, server: Valkey
    ) -> None:
        names = ["é", "a b", "{x}", "a/b", "*", "[ab]", "x" * 200, "名前🔒", "}:changed", "a\\b"]
        for name in names:
            take(store, session, name)
        for prefix in ("fencepost:x", "f*", "fence"):
            other = connect(f"{server.url}?prefix={prefix}")
            take(other, open_session(other), f"of {prefix}")
            assert [record.name for record in other.records()] == [f"of {prefix}"]
        assert [record.name for record in store.records()] == sorted(names)
        assert store.read("never") is None

    def test_many_records_are_all_found(self, store: RedisStore, session: Session, server: Valkey) -> None:
        with server.client() as client:
            client.set("fencepost:{no lock}", "somebody's own text")
        names = [f"{number:05}" for number in range(3 * SCRIPT_KEYS + 7)]
        for name in names:
            take(store, session, name)
        assert [record.name for record in store.records()] == names


class TestRoundTrips:
    def test_acquire_and_release_take_one_each(self, store: RedisStore, session: Session, sent: list[int]) -> None:
        store.release(take(store, session, "teach the scripts"))
        sent.clear()
        grant = take(store, session, "a", tick=TICK)
        assert len(sent) == 1
        store.release(grant, keep_for_s=1)
        assert len(sent) == 2

    def test_renewal_of_a_thousand_grants_takes_one_pipeline(
        self, store: RedisStore, session: Session, server: Valkey, sent: list[int]
    ) -> None:
        grants = [take(store, session, f"{number}") for number in range(1000)]
        assert store.renew(session, grants[:1]) == Renewed()  # connects, and teaches the script
        with server.client() as client:
            client.config_resetstat()
            sent.clear()
            assert store.renew(session, grants) == Renewed()
            assert len(sent) == 1
            called = client.info("commandstats")
        assert called["cmdstat_evalsha"]["calls"] == 1000 / SCRIPT_KEYS
        sent.clear()
        assert store.missing(grants) == frozenset()
        assert len(sent) == 1

    def test_renewal_without_grants_still_asks_the_server(self, connect: Connect) -> None:
        with Valkey() as server:
            store = connect(server.url)
            session = open_session(store)
            assert store.renew(session, []) == Renewed()
            server.kill()
            with pytest.raises(StoreUnavailable):
                store.renew(session, [])

    def test_renewals_have_a_connection_of_their_own(self, store: RedisStore, session: Session, server: Valkey) -> None:
        grant = take(store, session, "a")
        store.renew(session, [grant])
        with server.client() as client:
            named = [each for each in client.client_list() if each["name"] == "fencepost"]
        assert len(named) == 2


class TestExpiry:
    def test_expired_grant_is_not_revived(self, store: RedisStore) -> None:
        session = open_session(store, ttl_s=0.3)
        assert store.renew(session, []) == Renewed()
        grant = take(store, session, "a")
        kept = open_session(store)
        wait.until(lambda: store.missing([grant]), 30)
        # Another session of the process is alive and well; the grant is dead all the same.
        assert store.renew(kept, [grant]) == Renewed(frozenset([grant.grant_id]))
        assert not store.release(grant)
        assert take(store, kept, "a").token > grant.token

    def test_session_not_renewed_for_its_ttl_is_lost(self, connect: Connect, store: RedisStore) -> None:
        runtime = LeapingRuntime()
        sleepy = connect(runtime=runtime)
        session = open_session(sleepy, ttl_s=30)
        grant = take(sleepy, session, "a")
        runtime.slept_s = 29
        assert sleepy.renew(session, [grant]) == Renewed()
        runtime.slept_s = 29 + 31
        assert isinstance(sleepy.renew(session, [grant]), Lost)

    def test_closed_session_is_lost_and_its_grants_are_free(self, store: RedisStore, session: Session) -> None:
        grants = [take(store, session, f"{number}") for number in range(SCRIPT_KEYS + 1)]
        store.close(session)
        assert isinstance(store.renew(session, grants), Lost)
        assert store.missing(grants) == {grant.grant_id for grant in grants}

    def test_renewal_prolongs_grants_that_are_not_listed_yet(
        self, store: RedisStore, session: Session, server: Valkey
    ) -> None:
        """Between the grant and the next list lies a moment; trust in the session must not outlive the grant."""
        grant = take(store, session, "a")
        shorten(server, grant)
        assert store.renew(session, []) == Renewed()
        assert store.read("a").free_in_s > 29  # type: ignore[union-attr,operator]
        assert store.renew(session, [grant]) == Renewed()
        shorten(server, grant)
        assert store.renew(session, []) == Renewed()
        assert store.read("a").free_in_s < 11, "dropped from the list: it runs out"  # type: ignore[union-attr,operator]

    def test_unanswered_acquisition_is_not_prolonged_but_closed(self, connect: Connect, server: Valkey) -> None:
        direct = connect()
        with Proxy(server.host, server.port) as proxy:
            store = connect(f"{proxy.through(server.url)}?call_timeout=300ms")
            session = open_session(store)
            store.renew(session, [])
            store.read("warm")
            proxy.swallow_replies()
            unanswered(lambda: store.acquire(session, "doubtful", grant_id="x"))
            proxy.flow()
            proxy.cut()
            shorten(server, Grant("doubtful", session, "x", direct.read("doubtful").token))  # type: ignore[union-attr]
            assert store.renew(session, []) == Renewed()
            assert direct.read("doubtful").free_in_s < 11  # type: ignore[union-attr,operator]
            store.close(session)
            assert not direct.read("doubtful").is_held  # type: ignore[union-attr]

    def test_repeated_acquire_begins_the_ttl_anew(self, store: RedisStore, server: Valkey) -> None:
        session = open_session(store)
        grant = take(store, session, "a")
        shorten(server, grant)
        again = store.acquire(session, "a", grant_id=grant.grant_id)
        assert again == grant
        assert store.read("a").free_in_s > 29  # type: ignore[union-attr,operator]

    def test_slow_resolver_does_not_prolong_a_call(self, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
        """Drivers resolve names without a timeout, and try each address of a name with the whole of it."""
        resolver = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolver.wait(5))
        store = connect("redis://slow.example?call_timeout=300ms")
        assert measured(lambda: unanswered(lambda: store.read("x"))).awake_s < 1
        resolver.set()

    def test_release_that_was_repeated_after_another_came_is_unknown(self, store: RedisStore, connect: Connect) -> None:
        """The first try let go, its connection broke, somebody else took the name; then came the second try."""
        session, other = open_session(store), connect()
        grant = take(store, session, "a")
        wire: Any = store._calls._idle[-1]
        read_response = wire.read_response

        def broken(*arguments: Any, **options: Any) -> None:
            read_response(*arguments, **options)
            take(other, open_session(other), "a")
            raise RedisConnectionError("reset")

        wire.read_response = broken
        with pytest.raises(StoreUnavailable, match="while lock"):
            store.release(grant)
        assert store.release(grant) is False

    def test_only_the_servers_clock_counts(self, connect: Connect, store: RedisStore, session: Session) -> None:
        last = take(store, session, "a")
        for offset_s in (3600, -3600):
            wrong = connect(runtime=SkewedRuntime(offset_s))
            assert refused(wrong, "a").free_in_s == pytest.approx(30, abs=5)
            assert store.release(last)
            last = take(wrong, open_session(wrong), "a")
            assert store.read("a").token == last.token  # type: ignore[union-attr]
            assert abs(last.token - RUNTIME.wall_us()) < 10_000_000


class TestTicks:
    def test_last_tick_only_rises(self, store: RedisStore, session: Session) -> None:
        late = Tick(TICK.at_us + 5)
        early = take(store, session, "a", tick=TICK)
        with pytest.raises(AssertionError):
            take(store, session, "a", tick=late)
        assert store.release(early, done=False)
        store.release(take(store, session, "a", tick=late))
        assert store.acquire(session, "a", grant_id="x", tick=TICK) == AlreadyDone("a", TICK, late.at_us)
        # A grant that began before knows nothing of later ticks: its end must not take them back.
        no_tick = take(store, session, "a")
        assert store.release(Grant("a", session, no_tick.grant_id, no_tick.token, TICK))
        assert store.read("a").last_tick_us == late.at_us  # type: ignore[union-attr]

    def test_at_most_once_is_marked_when_taken(self, store: RedisStore, session: Session) -> None:
        tick = Tick(TICK.at_us, at_most_once=True)
        store.release(take(store, session, "a", tick=tick), done=False)
        assert isinstance(store.acquire(session, "a", grant_id="x", tick=tick), AlreadyDone)

    def test_kept_name_is_held_by_nobody(self, store: RedisStore, session: Session) -> None:
        grant = take(store, session, "a", tick=TICK)
        assert store.release(grant, keep_for_s=20)
        got = store.acquire(session, "a", grant_id="x", tick=TICK)
        assert isinstance(got, Held)
        assert (got.holder, got.grant_id, got.token) == (None, None, grant.token)
        assert got.free_in_s == pytest.approx(20, abs=5)


class TestForgetting:
    def test_flushed_server_tells_the_holder_and_tokens_rise(
        self, connect: Connect, store: RedisStore, session: Session, server: Valkey
    ) -> None:
        grant = take(store, session, "a")
        with server.client() as client:
            client.flushall()
        other = connect()
        successor = take(other, open_session(other), "a")
        assert successor.token > grant.token
        assert store.renew(session, [grant]) == Renewed(frozenset([grant.grant_id]))
        assert not store.release(grant)
        assert store.missing([grant, successor]) == {grant.grant_id}
        assert other.release(successor)

    def test_killed_server_comes_back_empty(self, connect: Connect) -> None:
        with Valkey() as server:
            store = connect(server.url)
            assert any("append-only" in warning for warning in store.start())
            session = open_session(store)
            grant = take(store, session, "a")
            assert store.renew(session, [grant]) == Renewed()
            server.kill()
            with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{server.port}"):
                store.acquire(session, "a", grant_id="x")
            server.restart()
            assert store.renew(session, [grant]) == Renewed(frozenset([grant.grant_id]))
            assert take(store, session, "a").token > grant.token

    def test_idle_connections_that_broke_are_replaced_unseen(self, connect: Connect) -> None:
        with Valkey(persist=True) as server:
            store = connect(server.url)
            assert not any("append-only" in warning for warning in store.start())
            session = open_session(store)
            grant = take(store, session, "a")
            store.renew(session, [grant])
            server.kill()
            server.restart()
            assert store.renew(session, [grant]) == Renewed(), "an append-only file keeps grants"
            assert refused(store, "a").grant_id == grant.grant_id
            server.restart()
            assert store.release(grant)

    def test_flushed_scripts_are_taught_again(self, store: RedisStore, session: Session, server: Valkey) -> None:
        grants = [take(store, session, f"{number}") for number in range(3 * SCRIPT_KEYS)]
        for work in (
            lambda: store.renew(session, grants) == Renewed(),
            lambda: store.missing(grants) == frozenset(),
            lambda: store.release(grants[0]),
            lambda: take(store, session, "0"),
            lambda: store.read("0"),
        ):
            with server.client() as client:
                client.script_flush()
            assert work()

    def test_foreign_key_in_place_of_a_record(self, store: RedisStore, session: Session, server: Valkey) -> None:
        grants = [take(store, session, name) for name in "ab"]
        with server.client() as client:
            client.set("fencepost:{a}", "overwritten")
        assert store.renew(session, grants) == Renewed(frozenset([grants[0].grant_id]))
        with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
            store.acquire(session, "a", grant_id="x")
        with server.client() as client:
            client.delete("fencepost:{a}")
        assert take(store, session, "a").token > grants[0].token

    def test_full_server_lets_go_but_gives_nothing(self, connect: Connect) -> None:
        with Valkey() as server:
            store = connect(server.url)
            session = open_session(store)
            grant = take(store, session, "a")
            with server.client() as client:
                client.config_set("maxmemory", "1")
                with pytest.raises(StoreUnavailable, match="maxmemory"):
                    store.acquire(session, "b", grant_id="x")
                with pytest.raises(StoreUnavailable, match="maxmemory"):
                    store.renew(session, [grant])
                assert store.release(grant)
                client.config_set("maxmemory", "0")
            take(store, session, "a")


class TestNetwork:
    @pytest.fixture
    def proxy(self, server: Valkey) -> Iterator[Proxy]:
        with Proxy(server.host, server.port) as proxy:
            yield proxy

    @pytest.mark.parametrize("is_warm", [True, False])
    def test_every_call_ends_in_time_when_nothing_answers(
        self, connect: Connect, server: Valkey, proxy: Proxy, is_warm: bool
    ) -> None:
        direct = connect()
        store = connect(f"{proxy.through(server.url)}?call_timeout=300ms")
        session, grant = prepared(store, f"hung {is_warm}", ttl_s=30, call_timeout_s=0.2)
        held = refused(direct, grant.name)
        record = direct.read(grant.name)
        assert record is not None
        calls: list[tuple[float, Callable[[], object]]] = [
            (0.2, lambda: store.renew(session, [grant])),
            (0.3, store.start),
            (0.3, lambda: store.acquire(session, "b", grant_id="x")),
            (0.3, lambda: store.release(grant)),
            (0.3, lambda: store.missing([grant])),
            (0.3, lambda: store.read("a")),
            (0.3, lambda: next(store.records())),
            (0.3, lambda: store.revoke(record)),
            (0.3, lambda: store.wait_change(held, 0.1)),
            (0.3, lambda: store.close(session)),
        ]
        for timeout_s, call in calls:
            proxy.flow()
            proxy.cut()
            store.shutdown()
            if is_warm:
                store.start()
                store.renew(session, [])
                store.read("warm")
                store.wait_change(held, 0.01)
            proxy.swallow()
            assert measured(lambda call=call: unanswered(call)).awake_s < timeout_s + SLACK_S  # type: ignore[misc]

    def test_call_whose_connection_broke_after_it_was_done_is_answered_once(
        self, connect: Connect, server: Valkey, proxy: Proxy
    ) -> None:
        direct, store = connect(), connect(f"{proxy.through(server.url)}?call_timeout=30s")
        session = open_session(store)
        store.release(take(store, session, "warm"))
        name, grant_id = "lost reply", RUNTIME.new_id()

        proxy.swallow_replies()
        acquiring = Aside(lambda: store.acquire(session, name, grant_id=grant_id))
        wait.until(lambda: proxy.bytes_swallowed, 30)
        seen = wait.until(lambda: direct.read(name), 30)
        proxy.flow()
        proxy.cut()
        grant = acquiring.result()
        assert isinstance(grant, Grant)
        assert grant.token == seen.token

        proxy.swallow_replies()
        before, releasing = proxy.bytes_swallowed, Aside(lambda: store.release(grant))
        wait.until(lambda: proxy.bytes_swallowed > before)  # or the answer would slip through, and then the cut hit
        wait.until(lambda: not direct.read(name).is_held, 30)  # type: ignore[union-attr]
        proxy.flow()
        proxy.cut()
        assert releasing.result() is True, "it was this call that let go, although it had to be sent twice"
        assert store.release(grant) is False

    def test_many_threads_share_a_store(self, store: RedisStore, session: Session) -> None:
        def work(number: int) -> list[int]:
            tokens = []
            for _ in range(50):
                grant = take(store, session, f"{number}")
                assert store.renew(session, [grant]) == Renewed()
                assert store.release(grant)
                tokens.append(grant.token)
            return tokens

        racers = [Aside(lambda number=number: work(number)) for number in range(8)]  # type: ignore[misc]
        for racer in racers:
            tokens = racer.result(30)
            assert tokens == sorted(set(tokens))

    def test_forgotten_connections_are_neither_used_nor_closed(
        self, connect: Connect, store: RedisStore, session: Session, server: Valkey
    ) -> None:
        take(store, session, "a")
        inherited = store._calls._idle[0]
        store.forget_connections()
        take(store, session, "b")
        assert store._calls._idle[0] is not inherited
        assert inherited.is_connected


class TestWaiting:
    def test_release_wakes_the_waiter(self, store: RedisStore, session: Session, connect: Connect) -> None:
        other = connect()
        for _ in range(3):  # the listening connection is used again
            grant = take(store, session, "a")
            held = refused(other, "a")
            waiting = Aside(lambda held=held: (other.wait_change(held, 20), RUNTIME.monotonic())[1])  # type: ignore[misc]
            wait.until(lambda: self.is_waited_for(store, "a"), 30)
            released_at = RUNTIME.monotonic()
            assert store.release(grant)
            assert waiting.result() - released_at < 10

    def test_revocation_and_closing_wake_the_waiter(self, store: RedisStore, connect: Connect) -> None:
        other = connect()
        for end in (
            store.close,
            lambda session: store.revoke(store.read("a")),  # type: ignore[arg-type]
        ):
            session = open_session(store)
            take(store, session, "a")
            held = refused(other, "a")
            waiting = Aside(lambda held=held: measured(lambda: other.wait_change(held, 20)).whole_s)  # type: ignore[misc]
            wait.until(lambda: self.is_waited_for(store, "a"), 30)
            end(session)
            assert waiting.result() < 10

    def test_change_between_refusal_and_wait_is_not_slept_through(self, store: RedisStore, session: Session) -> None:
        grant = take(store, session, "a")
        held = refused(store, "a")
        store.release(grant)
        assert measured(lambda: store.wait_change(held, 20)).whole_s < 10
        store.release(take(store, session, "a"), keep_for_s=20)
        assert measured(lambda: store.wait_change(held, 20)).whole_s < 10
        kept = refused(store, "a")
        assert kept.holder is None
        assert measured(lambda: store.wait_change(kept, 0.3)).whole_s >= 0.29, "it is still kept closed"

    def test_release_at_the_worst_moment_is_not_missed(
        self, store: RedisStore, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Had it looked before it listens, this release would fall into the gap."""
        grant = take(store, session, "a")
        held = refused(store, "a")
        original = Wire.subscribe

        def release_first(wire: Wire, channel: str) -> None:
            assert store.release(grant)
            original(wire, channel)

        monkeypatch.setattr(Wire, "subscribe", release_first)
        assert measured(lambda: store.wait_change(held, 20)).whole_s < 10

    def test_wait_ends_with_expiry_and_with_its_timeout(self, store: RedisStore, session: Session) -> None:
        taken_at = RUNTIME.monotonic()
        take(store, open_session(store, ttl_s=0.4), "a")
        assert measured(lambda: store.wait_change(refused(store, "a"), 20)).awake_s < 0.4 + SLACK_S
        assert RUNTIME.monotonic() - taken_at > 0.35
        take(store, session, "a")
        took = measured(lambda: store.wait_change(refused(store, "a"), 0.3))
        assert took.whole_s > 0.29
        assert took.awake_s < 0.3 + SLACK_S

    def test_nothing_is_announced_when_nobody_waits(self, store: RedisStore, session: Session, server: Valkey) -> None:
        with server.client() as client:
            client.config_resetstat()
            store.release(take(store, session, "a"))
            assert "cmdstat_publish" not in client.info("commandstats")

    def test_waiters_use_one_connection_each_and_give_it_back(
        self, store: RedisStore, session: Session, server: Valkey
    ) -> None:
        take(store, session, "a")
        held = refused(store, "a")
        for _ in range(5):
            store.wait_change(held, 0.01)
        with server.client() as client:
            named = [each for each in client.client_list() if each["name"] == "fencepost"]
        assert len(named) == 2

    def test_server_that_dies_ends_the_wait(self, connect: Connect) -> None:
        with Valkey() as server:
            store = connect(server.url)
            take(store, open_session(store), "a")
            held = refused(store, "a")
            waiting = Aside(lambda: measured(lambda: store.wait_change(held, 20)).whole_s)
            wait.until(lambda: self.is_waited_for(store, "a"), 30)
            server.kill()
            assert waiting.result() < 10

    def is_waited_for(self, store: RedisStore, name: str) -> bool:
        found = store._calls.ask(("HGET", f"fencepost:{{{name}}}", "waiting_until_us"), 1)
        return found is not None and int(found) > RUNTIME.wall_us()


class TestSentinel:
    def test_failover_is_followed_and_tokens_rise(self, connect: Connect, sentinels: Sentinels) -> None:
        store = connect(sentinels.url)
        assert any("asynchronous" in warning for warning in store.start())
        session = open_session(store, ttl_s=60)
        grant = take(store, session, "a")
        assert store.renew(session, [grant]) == Renewed()
        sentinels.fail_over()
        renewed = wait.until(lambda: store.renew(session, [grant]), 20, ignoring=(StoreUnavailable,))
        assert isinstance(renewed, Renewed)
        if grant.grant_id not in renewed.gone:  # replication had carried it over
            assert store.release(grant)
        assert take(store, session, "a").token > grant.token

    def test_one_sentinel_is_enough(self, connect: Connect, sentinels: Sentinels) -> None:
        for sentinel in sentinels.sentinels[:2]:
            sentinel.pause()
        try:
            store = connect(f"{sentinels.url}?call_timeout=2s")
            take(store, open_session(store), "b")
        finally:
            for sentinel in sentinels.sentinels[:2]:
                sentinel.resume()
