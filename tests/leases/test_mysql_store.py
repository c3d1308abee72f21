"""MariaDB tables as a lease store: what the contract suite does not ask of every store."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from fencepost.core.grants import Grant, Held, Lost, Renewed
from fencepost.errors import InvalidUrl, StoreRefused, StoreUnavailable, UnsafeStore
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores import mysql as mysql_store
from fencepost.leases.stores.sql.pymysql_connection import PymysqlConnection
from fencepost.leases.stores.sql.store import SqlLeaseStore
from fencepost.leases.urls import StoreUrl
from fencepost.testing import Stopwatch
from testbed import wait
from testbed.mariadb import MariaDB
from testbed.proxy import Proxy
from testbed.server import free_port
from tests.leases.preparing import prepared
from tests.leases.sql_contract import Deaths, Records, RoundTrips, Run, Shapes
from tests.leases.sql_store import RUNTIME, expired, opened, started, taken


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    with MariaDB() as mariadb:
        yield mariadb


@pytest.fixture
def url(server: MariaDB) -> str:
    return server.url


@pytest.fixture
def store(url: str) -> Iterator[SqlLeaseStore]:
    with started(url) as store:
        yield store


@pytest.fixture(name="run")
def run_fixture(server: MariaDB) -> Run:
    return lambda sql, *parameters: run(server, sql, *parameters)


def run(server: MariaDB, sql: str, *parameters: Any) -> list[Any]:
    with server.client() as connection, connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        connection.commit()
        return list(cursor.fetchall())


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}/{RUNTIME.new_id()[:8]}"


class TestRoundTrips(RoundTrips):
    pass


class TestRecords(Records):
    pass


class TestShapes(Shapes):
    pass


class TestStart:
    def test_galera_is_refused_unless_accepted(self) -> None:
        with MariaDB(galera=True) as cluster:
            with pytest.raises(UnsafeStore, match="certification") as refusal:
                store_from_url(cluster.url, RUNTIME).start()
            assert refusal.value.risk == "galera"
            store = store_from_url(f"{cluster.url}?accept_risk=galera", RUNTIME)
            [warning] = store.start()
            assert "Galera" in warning
            store.shutdown()

    def test_tables_are_made_once_by_many_at_once(self, server: MariaDB) -> None:
        errors: list[Exception] = []

        def start() -> None:
            try:
                with started(f"{server.url}?prefix=many_"):
                    pass
            except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                errors.append(error)

        threads = [threading.Thread(target=start) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []

    def test_table_without_transactions_is_refused(self, server: MariaDB) -> None:
        with started(f"{server.url}?prefix=isam_"):
            pass
        run(server, "ALTER TABLE isam_lease ENGINE=MyISAM")
        with pytest.raises(StoreRefused, match="ALTER TABLE isam_lease ENGINE=InnoDB"):
            store_from_url(f"{server.url}?prefix=isam_", RUNTIME).start()

    def test_table_without_its_key_is_refused(self, server: MariaDB) -> None:
        """As ``CREATE TABLE … AS SELECT`` makes it: two sessions at once would both insert the name."""
        with started(f"{server.url}?prefix=keyed_"):
            pass
        for table in ("session", "lease", "lease_history"):
            run(server, f"CREATE TABLE copied_{table} AS SELECT * FROM keyed_{table}")
        with pytest.raises(StoreRefused, match="primary key"):
            store_from_url(f"{server.url}?prefix=copied_", RUNTIME).start()

    def test_tables_are_transactional_whatever_the_default_is(self) -> None:
        with MariaDB(settings={"default-storage-engine": "MyISAM"}) as own, started(own.url):
            pass

    def test_missing_rights_are_refused_with_the_script_to_run(self, server: MariaDB) -> None:
        run(server, "CREATE USER poor@'127.0.0.1' IDENTIFIED BY 'pw'")
        run(server, "CREATE DATABASE bare")
        run(server, "GRANT SELECT, INSERT, UPDATE, DELETE ON bare.* TO poor@'127.0.0.1'")
        url = f"mariadb://poor:pw@{server.host}:{server.port}/bare"
        with pytest.raises(StoreRefused, match="CREATE TABLE") as refusal:
            store_from_url(url, RUNTIME).start()
        script = mysql_store.schema_sql(StoreUrl.parse(url))
        assert script in str(refusal.value)
        with server.client(database="bare") as admin, admin.cursor() as cursor:
            for statement in script.split(";\n")[:-1]:
                cursor.execute(statement)
        with started(url) as store:
            assert store.release(taken(store, opened(store), "now it works"))

    def test_wrong_password_is_refused_and_not_repeated(self, server: MariaDB) -> None:
        run(server, "CREATE USER app@'127.0.0.1' IDENTIFIED BY 'right'")
        with pytest.raises(StoreRefused, match="denied") as refusal:
            store_from_url(server.url.replace("root@", "app:S3CRET@"), RUNTIME).start()
        assert "S3CRET" not in str(refusal.value)

    def test_missing_database_is_refused(self, server: MariaDB) -> None:
        with pytest.raises(StoreRefused, match="nowhere"):
            store_from_url(server.url.replace("/fencepost", "/nowhere"), RUNTIME).start()

    def test_nobody_there_is_unavailable(self) -> None:
        with pytest.raises(StoreUnavailable):
            store_from_url(f"mysql://root@127.0.0.1:{free_port()}/fencepost", RUNTIME).start()

    @pytest.mark.parametrize("rest", ["h1,h2/db", "h1", "h1/db?scheme=x"])
    def test_url_that_cannot_work_is_refused(self, rest: str) -> None:
        with pytest.raises(InvalidUrl):
            store_from_url(f"mysql://{rest}", RUNTIME)

    def test_read_only_server_is_refused(self) -> None:
        with MariaDB() as own:
            run(own, "SET GLOBAL read_only = ON")
            with pytest.raises(StoreRefused, match="read-only"):
                store_from_url(own.url, RUNTIME).start()

    def test_forgetful_or_statement_logging_server_is_told(self, server: MariaDB) -> None:
        run(server, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        store = store_from_url(server.url, RUNTIME)
        [warning] = store.start()
        run(server, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        assert "innodb_flush_log_at_trx_commit=2" in warning
        store.shutdown()


class TestDeath(Deaths):
    def test_renewal_that_comes_first_saves_the_session_from_burial(
        self, server: MariaDB, store: SqlLeaseStore, name: str
    ) -> None:
        """The taker's clock was read before it waited for the row: stale, and so it errs on the safe side."""
        grant = expired(store, name)
        with server.client() as renewer, renewer.cursor() as cursor:
            cursor.execute(
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

    def test_burial_that_comes_first_is_final(self, server: MariaDB, store: SqlLeaseStore, name: str) -> None:
        """The renewal's clock was read before it waited: by it the session is alive, but there is no row to renew."""
        session = store.open("patient", ttl_s=60, call_timeout_s=8)
        grant = taken(store, session, name)
        with server.client() as burier, burier.cursor() as cursor:
            cursor.execute("DELETE FROM fencepost_session WHERE id = %s", (session.id,))
            outcome: list[Any] = []
            renewer = threading.Thread(target=lambda: outcome.append(store.renew(session, [grant])))
            renewer.start()
            wait.until(lambda: _waits_for_a_lock(server), 30, what="the renewal waits for the row")
            burier.commit()
            renewer.join()
        assert isinstance(outcome[0], Lost)

    def test_release_does_not_wait_for_a_heartbeat_nor_delay_it(
        self, server: MariaDB, store: SqlLeaseStore, name: str
    ) -> None:
        """Taking and releasing look at the session without locking it."""
        session = opened(store)
        with server.client() as renewer, renewer.cursor() as cursor:
            cursor.execute("UPDATE fencepost_session SET ttl_us = ttl_us + 1 WHERE id = %s", (session.id,))
            assert store.release(taken(store, session, name))
            renewer.rollback()

    def test_process_that_falls_silent_in_a_transaction_blocks_nobody_for_long(
        self, server: MariaDB, name: str
    ) -> None:
        with started(f"{server.url}?call_timeout=1s") as stalled, started(f"{server.url}?call_timeout=8s") as other:
            grant = expired(other, name)
            connection, _ = stalled._calls.pool.take(RUNTIME.monotonic() + 5)
            connection.deadline = RUNTIME.monotonic() + 5
            connection.begin()
            assert connection.change(stalled._sql.bury, (grant.session.id,)) == 1  # and then nothing more
            assert taken(other, opened(other), name)
            stalled._calls.pool.drop(connection)


def _waits_for_a_lock(server: MariaDB) -> bool:
    time.sleep(0.15)  # the server renews this table only if nobody has read it for 0.1 s
    return bool(run(server, "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"))


class TestTrouble:
    def test_restart_of_the_server_is_not_noticed_between_calls(self, name: str) -> None:
        with MariaDB() as own, started(own.url) as store:
            session = opened(store)
            grant = taken(store, session, name)
            assert store.renew(session, [grant]) == Renewed()
            own.kill()
            own.restart()
            assert store.renew(session, [grant]) == Renewed()
            assert store.release(grant)

    def test_release_whose_reply_was_lost_is_known_to_have_happened(self, store: SqlLeaseStore, name: str) -> None:
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

    def test_mute_server_ends_every_call_in_time(self, server: MariaDB, name: str) -> None:
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

    def test_deadlock_is_repeated(self, server: MariaDB, store: SqlLeaseStore, name: str) -> None:
        """Somebody holds the lease's row and wants the session's, which a burial has: one of the two must yield."""
        grant = expired(store, name)
        with server.client() as other, other.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 5")
            cursor.execute("SELECT 1 FROM fencepost_lease WHERE name = %s FOR UPDATE", (name,))
            burial = (20, lambda c: store._endings.bury(c, grant.session.id))
            thread = threading.Thread(target=store._calls.run, args=burial)
            thread.start()
            wait.until(lambda: _waits_for_a_lock(server), 30)
            try:
                cursor.execute("SELECT 1 FROM fencepost_session WHERE id = %s FOR UPDATE", (grant.session.id,))
            except pymysql.OperationalError as error:
                assert error.args[0] == 1213  # noqa: PT017 - either of the two may be the victim
            other.rollback()
            thread.join()
        assert [past.why for past in store.history(name, limit=5)] == ["expired"]

    def test_waiting_ends_soon_after_release(self, store: SqlLeaseStore, name: str) -> None:
        session = opened(store)
        grant = taken(store, session, name)
        held = store.acquire(session, name, grant_id="x")
        assert isinstance(held, Held)
        threading.Timer(0.2, lambda: store.release(grant)).start()
        began = time.monotonic()
        store.wait_change(held, 30)
        assert 0.1 < time.monotonic() - began < 10


def _break_after_next_statement(store: SqlLeaseStore) -> None:
    """Cut the one idle connection right after the server has done its next statements."""
    connection, _ = store._calls.pool.take(RUNTIME.monotonic() + 5)
    store._calls.pool.drop_idle()
    raw: Any = connection
    execute = raw._execute

    def broken(*arguments: Any) -> None:
        execute(*arguments)
        while raw._cursor.nextset():
            pass
        raw.raw.close()
        raise pymysql.OperationalError(2013, "Lost connection")

    raw._execute = broken
    store._calls.pool.give(connection)


def test_a_statement_that_is_no_longer_prepared_is_spelt_out(store: SqlLeaseStore, name: str) -> None:
    session = opened(store)
    first = taken(store, session, name)
    assert store.release(first)
    idle = [each for each, _ in store._calls.pool._idle if isinstance(each, PymysqlConnection)]
    assert sorted(len(each._prepared) for each in idle)[-1] == 2
    for connection in idle:
        for number in range(len(connection._prepared)):  # as a proxy does that gives us another server's session
            connection.change(f"DEALLOCATE PREPARE fencepost_{number}")
    second = taken(store, session, name)
    assert second.token > first.token
    assert store.release(second)
