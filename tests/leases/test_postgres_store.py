"""PostgreSQL tables as a lease store: what the contract suite does not ask of every store."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fencepost.core.grants import Grant, Held, Lost, Renewed
from fencepost.errors import InvalidUrl, StoreRefused, StoreUnavailable
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores import postgres as postgres_store
from fencepost.leases.stores.sql.store import SqlLeaseStore
from fencepost.leases.urls import StoreUrl
from fencepost.testing import Stopwatch
from testbed import wait
from testbed.pgbouncer import PgBouncer
from testbed.postgres import Postgres
from testbed.proxy import Proxy
from testbed.server import free_port
from tests.leases.preparing import prepared
from tests.leases.sql_contract import Deaths, Records, RoundTrips, Run, Shapes
from tests.leases.sql_store import RUNTIME, Counted, expired, opened, started, taken


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres() as postgres:
        yield postgres


@pytest.fixture(scope="module")
def bouncer(server: Postgres) -> Iterator[PgBouncer]:
    with PgBouncer(server, settings={"default_pool_size": "2"}) as bouncer:
        yield bouncer


@pytest.fixture
def store(server: Postgres) -> Iterator[SqlLeaseStore]:
    with started(server.url) as store:
        yield store


@pytest.fixture
def url(server: Postgres) -> str:
    return server.url


@pytest.fixture(name="run")
def run_fixture(server: Postgres) -> Run:
    return lambda sql, *parameters: run(server, sql, *parameters)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}/{RUNTIME.new_id()[:8]}"


def run(server: Postgres, sql: str, *parameters: Any) -> list[Any]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        cursor = connection.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []


def database(url: str, name: str) -> str:
    return f"{url.removesuffix('postgres')}{name}"


class TestStart:
    def test_tables_are_made_once_by_many_at_once(self, server: Postgres) -> None:
        run(server, "CREATE SCHEMA race")
        errors: list[Exception] = []

        def start() -> None:
            try:
                with started(f"{server.url}?schema=race&prefix=many_"):
                    pass
            except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                errors.append(error)

        threads = [threading.Thread(target=start) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert run(server, "SELECT count(*) FROM race.many_lease") == [(0,)]

    def test_prefix_and_schema_keep_stores_apart(self, server: Postgres, store: SqlLeaseStore, name: str) -> None:
        with started(f"{server.url}?schema=elsewhere&prefix=x_") as other:
            assert taken(store, opened(store), name)
            assert taken(other, opened(other), name)

    @pytest.mark.parametrize("option", ["prefix=a;drop", "schema=A", "prefix=1a", "prefix="])
    def test_identifiers_that_need_quotes_are_refused(self, server: Postgres, option: str) -> None:
        with pytest.raises(InvalidUrl):
            store_from_url(f"{server.url}?{option}", RUNTIME)

    def test_schema_that_is_a_word_of_sql_is_refused(self, server: Postgres) -> None:
        with pytest.raises(StoreRefused, match="schema=order"):
            store_from_url(f"{server.url}?schema=order", RUNTIME).start()

    def test_missing_rights_are_refused_with_the_script_to_run(self, server: Postgres) -> None:
        run(server, "CREATE ROLE poor LOGIN")
        run(server, "CREATE DATABASE bare")
        url = database(server.url.replace("postgres@", "poor@"), "bare")
        store = store_from_url(url, RUNTIME)
        with pytest.raises(StoreRefused, match="CREATE TABLE") as refusal:
            store.start()
        script = postgres_store.schema_sql(StoreUrl.parse(url))
        assert script in str(refusal.value)
        with psycopg.connect(database(server.url, "bare"), autocommit=True) as admin:
            admin.execute(script)
            admin.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO poor")
        with started(url) as store:
            grant = taken(store, opened(store), "now it works")
            assert store.release(grant)

    def test_wrong_database_is_refused(self, server: Postgres) -> None:
        with pytest.raises(StoreRefused, match='"nowhere" does not exist'):
            store_from_url(database(server.url, "nowhere"), RUNTIME).start()

    def test_wrong_user_is_refused(self, server: Postgres) -> None:
        with pytest.raises(StoreRefused, match='"nobody" does not exist'):
            store_from_url(server.url.replace("postgres@", "nobody@"), RUNTIME).start()

    def test_wrong_password_is_refused_and_not_repeated(self) -> None:
        with Postgres() as own:
            run(own, "CREATE ROLE app LOGIN PASSWORD 'right'")
            hba = own.data / "pg_hba.conf"
            hba.write_text("host all app 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n")
            run(own, "SELECT pg_reload_conf()")
            url = own.url.replace("postgres@", "app:S3CRET@")
            wait.until(lambda: _is_refused(url), 30, what="the new pg_hba.conf is in force")
            with pytest.raises(StoreRefused, match="password") as refusal:
                store_from_url(url, RUNTIME).start()
            assert "S3CRET" not in str(refusal.value)

    def test_nobody_there_is_unavailable(self) -> None:
        store = store_from_url(f"postgresql://postgres@127.0.0.1:{free_port()}/postgres", RUNTIME)
        with pytest.raises(StoreUnavailable):
            store.start()

    def test_read_only_server_is_refused(self) -> None:
        settings = {"default_transaction_read_only": "on"}
        with Postgres(settings=settings) as own, pytest.raises(StoreRefused, match="read-only"):
            store_from_url(own.url, RUNTIME).start()

    def test_forgetful_server_is_reported(self) -> None:
        with Postgres(settings={"synchronous_commit": "off", "fsync": "off"}) as own:
            store = store_from_url(own.url, RUNTIME)
            warnings = store.start()
            assert [word for word in ("synchronous_commit", "fsync") if not any(word in w for w in warnings)] == []
            store.shutdown()


def _is_refused(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return True
    return False


class TestRoundTrips(RoundTrips):
    pass


class TestRecords(Records):
    pass


class TestShapes(Shapes):
    pass


class TestDeath(Deaths):
    def test_renewal_that_comes_first_saves_the_session_from_burial(
        self, server: Postgres, store: SqlLeaseStore, name: str
    ) -> None:
        """A taker has seen the session expired and waits for its row, which a renewal has locked."""
        grant = expired(store, name)
        with psycopg.connect(server.url) as renewer:
            renewer.execute(
                "UPDATE fencepost_session SET expires_at = expires_at + 60000000 WHERE id = %s", (grant.session.id,)
            )
            outcome: list[Any] = []
            heir = opened(store, "heir")
            taker = threading.Thread(
                target=lambda: outcome.append(store.acquire(heir, name, grant_id=RUNTIME.new_id()))
            )
            taker.start()
            wait.until(lambda: _waits_for_a_lock(server), 30, what="the taker waits for the row")
            renewer.commit()
            taker.join()
        assert isinstance(outcome[0], Held)
        assert store.missing([grant]) == frozenset()

    def test_burial_that_comes_first_is_final(self, server: Postgres, store: SqlLeaseStore, name: str) -> None:
        """A renewal has passed its look at the clock and waits for the row, which a burial has locked."""
        session = store.open("patient", ttl_s=60, call_timeout_s=8)
        grant = taken(store, session, name)
        with psycopg.connect(server.url) as burier:
            burier.execute("DELETE FROM fencepost_session WHERE id = %s", (session.id,))
            outcome: list[Any] = []
            renewer = threading.Thread(target=lambda: outcome.append(store.renew(session, [grant])))
            renewer.start()
            wait.until(lambda: _waits_for_a_lock(server), 30, what="the renewal waits for the row")
            burier.commit()
            renewer.join()
        assert isinstance(outcome[0], Lost)

    def test_fresh_lease_of_a_fresh_session_is_not_taken_for_a_dead_one(
        self, server: Postgres, store: SqlLeaseStore, name: str
    ) -> None:
        """A statement that waits for a lease's row must not judge its new session by a snapshot older than it."""
        assert store.release(taken(store, opened(store), name))
        with psycopg.connect(server.url) as winner:
            winner.execute("SELECT 1 FROM fencepost_lease WHERE name = %s FOR UPDATE", (name,))
            outcome: list[Any] = []
            loser = opened(store, "loser")
            thread = threading.Thread(
                target=lambda: outcome.append(store.acquire(loser, name, grant_id=RUNTIME.new_id()))
            )
            thread.start()
            wait.until(lambda: _waits_for_a_lock(server), 30)
            winner.execute(
                "INSERT INTO fencepost_session SELECT 'fresh', 'fresh', 1, 1, expires_at FROM fencepost_session "
                "WHERE id = %s",
                (loser.id,),
            )
            winner.execute(
                "UPDATE fencepost_lease SET session_id = 'fresh', grant_id = 'g', holder = 'fresh' WHERE name = %s",
                (name,),
            )
            winner.commit()
            thread.join()
        assert isinstance(outcome[0], Held)
        assert outcome[0].holder == "fresh"

    def test_process_that_falls_silent_in_a_transaction_blocks_nobody_for_long(
        self, server: Postgres, name: str
    ) -> None:
        with started(f"{server.url}?call_timeout=500ms") as stalled, started(server.url) as other:
            grant = expired(other, name)
            connection, _ = stalled._calls.pool.take(RUNTIME.monotonic() + 5)
            connection.deadline = RUNTIME.monotonic() + 5
            connection.begin()
            assert connection.change(stalled._sql.bury, (grant.session.id,)) == 1  # and then nothing more
            assert taken(other, opened(other), name)
            stalled._calls.pool.drop(connection)


def _waits_for_a_lock(server: Postgres) -> bool:
    return bool(run(server, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))


class TestTrouble:
    def test_restart_of_the_server_is_not_noticed_between_calls(self, name: str) -> None:
        with Postgres() as own, started(own.url) as store:
            session = opened(store)
            grant = taken(store, session, name)
            assert store.renew(session, [grant]) == Renewed()
            own.kill()
            own.restart()
            assert store.renew(session, [grant]) == Renewed()
            assert store.release(grant)

    def test_release_whose_reply_was_lost_is_known_to_have_happened(
        self, server: Postgres, store: SqlLeaseStore, name: str
    ) -> None:
        """The connection breaks after the statement was done: the repeat finds it in the history."""
        grant = taken(store, opened(store), name)
        _break_after_next_statement(store)
        assert store.release(grant)
        assert [past.why for past in store.history(name, limit=5)] == ["released"]

    def test_acquire_whose_reply_was_lost_returns_the_grant(self, store: SqlLeaseStore, name: str) -> None:
        session = opened(store)
        _break_after_next_statement(store)
        grant = store.acquire(session, name, grant_id="the one")
        assert isinstance(grant, Grant)
        assert store.missing([grant]) == frozenset()

    def test_mute_server_ends_every_call_in_time(self, server: Postgres, store: SqlLeaseStore, name: str) -> None:
        with (
            Proxy(server.host, server.port) as proxy,
            started(f"{proxy.through(server.url)}?call_timeout=600ms") as far,
        ):
            session, grant = prepared(far, name, ttl_s=60, call_timeout_s=0.3)
            proxy.swallow()
            for limit_s, call in (
                (0.3, lambda: far.renew(session, [grant])),
                (0.6, lambda: far.release(grant)),
                (0.6, lambda: far.acquire(session, f"{name}/2", grant_id="x")),
                (0.6, lambda: far.read(name)),
                (0.6, lambda: far.close(session)),
            ):
                with Stopwatch() as took, pytest.raises(StoreUnavailable, match="did not answer within"):
                    call()
                assert took.awake_s < limit_s + 0.4

    def test_calls_beyond_the_pool_wait_in_line_and_give_up_in_time(self, server: Postgres, name: str) -> None:
        with started(f"{server.url}?call_timeout=300ms") as store:
            taken_away = [store._calls.pool.take(RUNTIME.monotonic() + 5)[0] for _ in range(8)]
            with pytest.raises(StoreUnavailable):
                store.read(name)
            threading.Timer(0.1, lambda: [store._calls.pool.give(each) for each in taken_away]).start()
            assert store.read(name) is None

    def test_who_is_interrupted_in_line_leaves_no_gap(self, server: Postgres, name: str) -> None:
        """Ctrl-C while all connections are busy: the next one that is free must not be handed to nobody."""
        with started(f"{server.url}?call_timeout=2s") as store:
            taken_away = [store._calls.pool.take(RUNTIME.monotonic() + 5)[0] for _ in range(8)]
            main = threading.get_ident()
            threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                store.read(name)
            for each in taken_away:
                store._calls.pool.give(each)
            assert len(store._calls.pool._idle) == 8

    def test_connection_in_use_at_shutdown_is_closed_when_its_call_ends(self, server: Postgres, name: str) -> None:
        with started(f"{server.url}?application_name=in_use_at_shutdown") as store:
            grant = taken(store, opened(store), name)
            with psycopg.connect(server.url) as other:
                other.execute("SELECT 1 FROM fencepost_lease WHERE name = %s FOR UPDATE", (name,))
                releasing = threading.Thread(target=store.release, args=(grant,))
                releasing.start()
                wait.until(lambda: _waits_for_a_lock(server), 30)
                store.shutdown()
            releasing.join()
            mine = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'in_use_at_shutdown'"
            wait.until(lambda: not run(server, mine), 30, what="the connection is closed")


def _break_after_next_statement(store: SqlLeaseStore) -> None:
    """Close the one idle connection right after it has executed its next statement."""
    connection, _ = store._calls.pool.take(RUNTIME.monotonic() + 5)
    store._calls.pool.drop_idle()
    raw: Any = connection
    execute = raw._execute

    def broken(*arguments: Any) -> None:
        execute(*arguments)
        raw.raw.close()
        raise psycopg.OperationalError("the connection was reset")

    raw._execute = broken
    store._calls.pool.give(connection)


class TestWaiting:
    def test_release_wakes_a_waiter_of_another_process_at_once(self, server: Postgres, name: str) -> None:
        with started(server.url) as one, started(server.url) as other:
            lags = []
            for turn in range(5):
                grant = taken(one, opened(one), f"{name}/{turn}")
                held = other.acquire(opened(other), grant.name, grant_id="x")
                assert isinstance(held, Held)
                lags.append(_lag(one, other, grant, held))
            assert sorted(lags)[2] < 0.4, lags

    def test_release_without_waiters_notifies_nobody(self, store: SqlLeaseStore, name: str) -> None:
        grant = taken(store, opened(store), name)
        counted = Counted(store)
        assert store.release(grant)
        assert len(counted.statements) == 1

    def test_change_before_waiting_is_not_slept_through(self, store: SqlLeaseStore, name: str) -> None:
        session = opened(store)
        grant = taken(store, session, name)
        held = store.acquire(session, name, grant_id="x")
        assert isinstance(held, Held)
        store.release(grant)
        began = time.monotonic()
        store.wait_change(held, 30)
        assert time.monotonic() - began < 10

    def test_waiters_on_a_mute_server_give_up_beside_each_other(self, server: Postgres, name: str) -> None:
        with Proxy(server.host, server.port) as proxy, started(f"{proxy.through(server.url)}?call_timeout=1s") as far:
            taken(far, opened(far), name)
            held = far.acquire(opened(far), name, grant_id="x")
            assert isinstance(held, Held)
            proxy.swallow()
            refused: list[StoreUnavailable] = []

            def wait_in_vain() -> None:
                try:
                    far.wait_change(held, 30)
                except StoreUnavailable as error:
                    refused.append(error)

            waiters = [threading.Thread(target=wait_in_vain) for _ in range(6)]
            with Stopwatch() as took:
                for waiter in waiters:
                    waiter.start()
                far.shutdown()
            assert took.awake_s < 0.5
            with Stopwatch() as took:
                for waiter in waiters:
                    waiter.join()
            assert took.awake_s < 3
            assert len(refused) == 6

    def test_lost_listener_is_caught_up_within_seconds(self, server: Postgres, name: str) -> None:
        with started(server.url) as one, started(server.url) as other:
            grant = taken(one, opened(one), name)
            held = other.acquire(opened(other), name, grant_id="x")
            assert isinstance(held, Held)
            done = threading.Event()
            waiter = threading.Thread(target=lambda: (other.wait_change(held, 30), done.set()))
            waiter.start()
            wait.until(lambda: run(server, "SELECT 1 FROM fencepost_lease WHERE name = %s AND waiting_until > 0", name))
            run(server, "UPDATE fencepost_lease SET waiting_until = 0 WHERE name = %s", name)  # nobody will notify
            one.release(grant)
            assert done.wait(10)
            waiter.join()


def _lag(one: SqlLeaseStore, other: SqlLeaseStore, grant: Grant, held: Held) -> float:
    waiter = threading.Thread(target=other.wait_change, args=(held, 20))
    waiter.start()
    wait.until(lambda: other._watch._listening._ear and other._watch._listening._ear._waiting)  # type: ignore[attr-defined]
    time.sleep(0.05)  # let it come to rest; the test below measures only what follows
    with Stopwatch() as took:
        assert one.release(grant)
        waiter.join()
    return took.awake_s


class TestBehindPgBouncer:
    def test_leases_work_and_waiting_polls(self, bouncer: PgBouncer, store: SqlLeaseStore, name: str) -> None:
        with started(bouncer.url) as pooled:
            session = opened(pooled)
            for _ in range(20):  # more often than psycopg takes to prepare a statement
                grant = taken(pooled, session, name)
                assert pooled.renew(session, [grant]) == Renewed()
                assert isinstance(store.acquire(opened(store), name, grant_id="x"), Held)
                assert pooled.release(grant)
            direct = taken(store, opened(store), name)
            held = pooled.acquire(session, name, grant_id="x")
            assert isinstance(held, Held)
            threading.Timer(0.2, lambda: store.release(direct)).start()
            began = time.monotonic()
            pooled.wait_change(held, 30)
            assert time.monotonic() - began < 10

    def test_takeover_works(self, bouncer: PgBouncer, name: str) -> None:
        with started(bouncer.url) as pooled:
            old = expired(pooled, name)
            assert taken(pooled, opened(pooled), name).token > old.token

    def test_nothing_is_set_on_connections_that_others_share(self, bouncer: PgBouncer, name: str) -> None:
        with started(bouncer.url) as pooled:
            expired(pooled, name)
            taken(pooled, opened(pooled), name)
        with psycopg.connect(bouncer.url, autocommit=True) as other:
            for _ in range(4):
                assert other.execute("SHOW statement_timeout").fetchone() == ("0",)
