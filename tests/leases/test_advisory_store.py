"""Advisory locks of PostgreSQL as a lease store: what the contract suite does not ask of every store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fencepost.core.grants import Grant, Held, Lost, Renewed, Session
from fencepost.errors import StoreUnavailable, UnsafeStore
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.sql import advisory_store
from fencepost.leases.stores.sql.advisory_session import halves, key_of
from fencepost.leases.stores.sql.advisory_store import AdvisoryStore
from fencepost.testing import Stopwatch
from testbed import wait
from testbed.pgbouncer import PgBouncer
from testbed.postgres import Postgres
from tests.leases.sql_store import RUNTIME, opened, started, taken


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres() as postgres:
        yield postgres


@pytest.fixture
def store(server: Postgres) -> Iterator[AdvisoryStore]:
    with started(advisory(server.url)) as store:
        assert isinstance(store, AdvisoryStore)
        yield store


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}/{RUNTIME.new_id()[:8]}"


def advisory(url: str) -> str:
    return url.replace("postgresql:", "postgresql+advisory:")


def run(server: Postgres, sql: str, *parameters: Any) -> list[Any]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        cursor = connection.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []


def locked_by(server: Postgres, name: str) -> list[int]:
    """The server processes that hold the advisory lock of `name`."""
    sql = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %s::oid AND objid = %s::oid"
    return [pid for (pid,) in run(server, sql, *(str(half) for half in halves(key_of(name))))]


def asked(store: AdvisoryStore, session: Session, name: str) -> object:
    return store.acquire(session, name, grant_id=RUNTIME.new_id())


class TestPooling:
    @pytest.mark.parametrize(
        "settings",
        [
            {"default_pool_size": "20"},
            {"default_pool_size": "1"},
            {"default_pool_size": "20", "server_round_robin": "1"},
            {"default_pool_size": "20", "min_pool_size": "6", "server_round_robin": "1"},
        ],
    )
    def test_transaction_pooling_is_refused_unless_accepted(self, server: Postgres, settings: dict[str, str]) -> None:
        with PgBouncer(server, settings=settings) as bouncer:
            with pytest.raises(UnsafeStore, match="pool_mode=transaction") as refusal:
                store_from_url(advisory(bouncer.url), RUNTIME).start()
            assert refusal.value.risk == "pooled-sessions"
            if settings["default_pool_size"] != "1":
                accepted = store_from_url(f"{advisory(bouncer.url)}?accept_risk=pooled-sessions", RUNTIME)
                [warning] = accepted.start()
                assert "proxy" in warning
                accepted.shutdown()

    def test_statement_pooling_is_refused(self, server: Postgres) -> None:
        with started(server.url):  # the tables are there
            pass
        with PgBouncer(server, pool_mode="statement") as bouncer, pytest.raises(UnsafeStore):
            store_from_url(advisory(bouncer.url), RUNTIME).start()

    def test_session_pooling_works(self, server: Postgres, name: str) -> None:
        with PgBouncer(server, pool_mode="session") as bouncer, started(advisory(bouncer.url)) as store:
            session, other = opened(store), opened(store)
            grant = taken(store, session, name)
            assert isinstance(asked(store, other, name), Held)
            assert store.renew(session, [grant]) == Renewed()
            assert store.release(grant)
            assert locked_by(server, name) == []

    @pytest.mark.parametrize("way", ["close", "shutdown"])
    def test_a_pool_that_resets_nothing_keeps_no_lock_of_a_session_that_ended(
        self, server: Postgres, name: str, way: str
    ) -> None:
        settings = {"server_reset_query": "", "default_pool_size": "20"}
        with PgBouncer(server, pool_mode="session", settings=settings) as bouncer:
            with started(advisory(bouncer.url)) as store:
                session = opened(store)
                taken(store, session, name)
                if way == "close":
                    store.close(session)
                    assert locked_by(server, name) == []
            assert locked_by(server, name) == []

    def test_what_a_killed_client_left_to_the_pool_is_not_kept_by_who_comes_next(
        self, server: Postgres, name: str
    ) -> None:
        """PostgreSQL counts: who gets the connection locks a second time, and its release frees one of two."""
        settings = {"server_reset_query": "", "default_pool_size": "20"}
        with (
            PgBouncer(server, pool_mode="session", settings=settings) as bouncer,
            started(advisory(bouncer.url)) as store,
        ):
            with psycopg.connect(bouncer.url, autocommit=True) as killed:
                killed.execute("SELECT pg_advisory_lock(%s)", (key_of(name),))
            [process] = locked_by(server, name)
            session = opened(store)
            grant = taken(store, session, name)
            assert locked_by(server, name) == [process], "it got the connection that was left"
            assert store.release(grant)
            assert locked_by(server, name) == []

    def test_direct_connection_is_not_mistaken_for_a_proxy(self, store: AdvisoryStore) -> None:
        assert store._check_pooling() == ()


class TestLocks:
    def test_row_and_lock_go_together(self, server: Postgres, store: AdvisoryStore, name: str) -> None:
        session = opened(store)
        for _ in range(3):
            grant = taken(store, session, name)
            assert len(locked_by(server, name)) == 1
            assert store.release(grant)
            assert locked_by(server, name) == []

    def test_session_is_not_let_in_twice(self, server: Postgres, store: AdvisoryStore, name: str) -> None:
        """PostgreSQL would count, and one release would not free it."""
        session = opened(store)
        grant = taken(store, session, name)
        assert isinstance(asked(store, session, name), Held)
        assert store.acquire(session, name, grant_id=grant.grant_id) == grant
        assert store.release(grant)
        assert locked_by(server, name) == []

    def test_second_session_of_a_process_is_refused(self, store: AdvisoryStore, name: str) -> None:
        taken(store, opened(store, "one"), name)
        held = asked(store, opened(store, "other"), name)
        assert isinstance(held, Held)
        assert held.holder == "one"

    def test_names_with_one_key_never_have_two_holders(
        self, store: AdvisoryStore, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(advisory_store, "key_of", lambda _: 4711)
        session, other = opened(store), opened(store)
        grant = taken(store, session, name)
        for each in (session, other):
            assert isinstance(asked(store, each, f"{name}/collides"), Held)
        assert not store.release(Grant(f"{name}/collides", session, "x", 1))
        assert isinstance(asked(store, other, name), Held)
        assert store.release(grant)
        assert taken(store, other, f"{name}/collides")

    def test_key_that_another_program_has_locked_is_held_by_nobody_we_know(
        self, server: Postgres, store: AdvisoryStore, name: str
    ) -> None:
        session = opened(store)
        with psycopg.connect(server.url) as other:
            other.execute("SELECT pg_advisory_lock(%s)", (key_of(name),))
            held = asked(store, session, name)
            assert isinstance(held, Held)
            assert held.holder is None
        wait.until(lambda: locked_by(server, name) == [], 30, what="the server has let it go")
        assert taken(store, session, name)

    def test_refused_tick_or_kept_name_leaves_no_lock(self, server: Postgres, store: AdvisoryStore, name: str) -> None:
        session = opened(store)
        assert store.release(taken(store, session, name), keep_for_s=60)
        assert isinstance(asked(store, session, name), Held)
        assert locked_by(server, name) == []

    def test_busy_row_leaves_no_lock_and_no_harm(self, server: Postgres, store: AdvisoryStore, name: str) -> None:
        session = opened(store, call_timeout_s=1.0)
        other = taken(store, session, f"{name}/other")
        assert store.release(taken(store, session, name))
        with psycopg.connect(server.url) as busy:
            busy.execute("SELECT 1 FROM fencepost_lease WHERE name = %s FOR UPDATE", (name,))
            with pytest.raises(StoreUnavailable, match="busy"):
                asked(store, session, name)
        assert locked_by(server, name) == []
        assert store.renew(session, [other]) == Renewed()
        assert taken(store, session, name)

    def test_table_leases_and_advisory_leases_respect_each_other(
        self, server: Postgres, store: AdvisoryStore, name: str
    ) -> None:
        with started(server.url) as tables:
            by_table = taken(tables, opened(tables, "table"), f"{name}/table")
            by_lock = taken(store, opened(store, "lock"), f"{name}/lock")
            refused = asked(store, opened(store), by_table.name)
            assert isinstance(refused, Held)
            assert refused.holder == "table"
            assert locked_by(server, by_table.name) == []
            refused = tables.acquire(opened(tables), by_lock.name, grant_id="x")
            assert isinstance(refused, Held)
            assert refused.holder == "lock"


class TestRenewal:
    def test_thousand_grants_are_renewed_by_one_statement(
        self, store: AdvisoryStore, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = opened(store)
        grants = [taken(store, session, f"{name}/{each}") for each in range(1000)]
        statements: list[str] = []
        own = store._sessions[session.id]
        rows = advisory_store.PsycopgConnection.rows
        monkeypatch.setattr(
            advisory_store.PsycopgConnection,
            "rows",
            lambda self, sql, parameters=(): statements.append(sql) or rows(self, sql, parameters),
        )
        assert store.renew(session, grants) == Renewed()
        assert len(statements) == 1
        assert len(own.keys) == 1000

    def test_revoked_or_deleted_grant_is_named_and_its_lock_freed(
        self, server: Postgres, store: AdvisoryStore, name: str
    ) -> None:
        session = opened(store)
        revoked, deleted, kept = (taken(store, session, f"{name}/{each}") for each in "rdk")
        record = store.read(revoked.name)
        assert record is not None
        assert store.revoke(record)
        run(server, "DELETE FROM fencepost_lease WHERE name = %s", deleted.name)
        gone = frozenset({revoked.grant_id, deleted.grant_id})
        assert store.missing([revoked, deleted, kept]) == gone
        assert store.renew(session, [revoked, deleted, kept]) == Renewed(gone)
        other = opened(store)
        for grant in (revoked, deleted):
            assert taken(store, other, grant.name).token > grant.token
        assert isinstance(asked(store, other, kept.name), Held)


class TestLoss:
    def test_broken_connection_is_lost_at_once_and_replaced_at_once(
        self, server: Postgres, store: AdvisoryStore, name: str
    ) -> None:
        session, other = opened(store, "cut off"), opened(store)
        grant = taken(store, session, name)
        [pid] = locked_by(server, name)
        run(server, "SELECT pg_terminate_backend(%s)", pid)
        with Stopwatch() as took:
            new = wait.until(lambda: _granted(asked(store, other, name)))
        assert took.awake_s < 2
        assert new.token > grant.token
        assert isinstance(store.renew(session, [grant]), Lost)
        assert isinstance(asked(store, session, f"{name}/2"), Lost)
        assert not store.release(grant)
        assert store.missing([grant, new]) == {grant.grant_id}
        assert [(past.holder, past.why) for past in store.history(name, limit=5)] == [("cut off", "expired")]

    def test_silent_holder_is_dropped_by_the_server_after_the_ttl(
        self, server: Postgres, store: AdvisoryStore, name: str
    ) -> None:
        session, other = opened(store, ttl_s=0.5), opened(store)
        began = time.monotonic()
        grant = taken(store, session, name)
        wait.until(lambda: _granted(asked(store, other, name)), 30, what="the server drops an idle session")
        assert time.monotonic() - began >= 0.5
        assert isinstance(store.renew(session, [grant]), Lost)

    def test_holder_whose_lock_is_gone_is_not_shown_as_holder(
        self, server: Postgres, store: AdvisoryStore, name: str
    ) -> None:
        grant = taken(store, opened(store), name)
        [pid] = locked_by(server, name)
        run(server, "SELECT pg_terminate_backend(%s)", pid)
        wait.until(lambda: not locked_by(server, name), 30)
        record = store.read(name)
        assert record is not None
        assert not record.is_held
        assert record.token == grant.token
        assert not any(each.is_held for each in store.records() if each.name == name)

    def test_closing_leaves_no_connection(self, server: Postgres, store: AdvisoryStore, name: str) -> None:
        session = opened(store)
        taken(store, session, name)
        [pid] = locked_by(server, name)
        store.close(session)
        wait.until(lambda: run(server, "SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid) == [], 30)
        assert [past.why for past in store.history(name, limit=5)] == ["session closed"]


def _granted(outcome: object) -> Grant | None:
    return outcome if isinstance(outcome, Grant) else None


def test_key_is_the_documented_hash() -> None:
    """Other programs may want to respect our locks; so the key must not change between versions."""
    assert key_of("nightly") == int.from_bytes(
        __import__("hashlib").sha256(b"fencepost:nightly").digest()[:8], "big", signed=True
    )
    assert -(2**63) <= key_of("x") < 2**63
