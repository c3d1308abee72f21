"""On PostgreSQL the check goes along with COMMIT, past the driver: what is lost, refused or left behind on that way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.exc
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, event, text

from fencepost import locks
from fencepost.effects.installing import install, open_database
from fencepost.errors import LeaseLost
from fencepost.testing import until
from testbed.pgbouncer import PgBouncer
from testbed.postgres import Postgres
from testbed.proxy import Proxy
from tests.fence.grounds import EFFECTS, RUNTIME, Ground, by_django, driver_connection, write
from tests.fence.test_transactions import urls


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(*urls("postgresql", "other", request, tmp_path_factory.mktemp("ground")))
    yield ground
    ground.close()


@pytest.fixture
def ground(shared: Ground) -> Ground:
    shared.change(f"DELETE FROM {EFFECTS}")
    return shared


@contextmanager
def proxied(ground: Ground) -> Iterator[tuple[Proxy, Any]]:
    at = ground.url.sqlalchemy()
    with Proxy(at.host or "", at.port or 0) as proxy:
        yield proxy, at.set(host=proxy.host, port=proxy.port)


@contextmanager
def engine_at(at: Any, **options: Any) -> Iterator[Engine]:
    engine = sqlalchemy.create_engine(at, **options)
    yield engine
    engine.dispose()


def driver_at(at: Any, **options: Any) -> Any:
    return psycopg.connect(at.set(drivername="postgresql").render_as_string(False), **options)


class TestLostConnections:
    """The errors are of the classes that they have without a fence, and nothing broken stays in a pool."""

    def test_an_engine_whose_connection_is_cut_before_the_commit_goes_on_with_another(self, ground: Ground) -> None:
        run = ground.run()
        with proxied(ground) as (proxy, at), engine_at(at) as engine:
            with pytest.raises(sqlalchemy.exc.OperationalError) as caught, run.fence(engine) as tx:
                write(tx)
                proxy.cut()
            assert caught.value.connection_invalidated
            with run.fence(engine) as tx:
                write(tx, 2)
        assert ground.effects() == [2]

    def test_when_one_of_a_pool_was_cut_all_of_it_is_given_up(self, ground: Ground) -> None:
        run = ground.run()
        with proxied(ground) as (proxy, at), engine_at(at, pool_size=2) as engine:
            with engine.begin() as other, run.fence(engine) as tx:
                write(tx)
                other.execute(text("SELECT 1"))
            proxy.cut()
            with pytest.raises(sqlalchemy.exc.OperationalError), run.fence(engine):
                pytest.fail("it began")
            with run.fence(engine) as tx:
                write(tx, 2)
        assert ground.effects() == [1, 2]

    def test_the_driver_says_that_its_connection_is_lost(self, ground: Ground) -> None:
        run = ground.run()
        with proxied(ground) as (proxy, at), closing(driver_at(at)) as connection:
            with pytest.raises(psycopg.OperationalError), run.fence(connection) as tx:
                write(tx)
                proxy.cut()
            assert connection.broken
        assert ground.effects() == []

    def test_django_says_so_too(self, ground: Ground) -> None:
        run = ground.run()
        with proxied(ground) as (proxy, at):
            url: Any = SimpleNamespace(kind="postgresql", sqlalchemy=lambda: at)
            with by_django(url) as connection:
                from django.db import OperationalError

                with pytest.raises(OperationalError), run.fence(connection) as tx:
                    write(tx)
                    proxy.cut()
        assert ground.effects() == []

    def test_a_commit_that_was_not_answered_is_not_done_again(self, ground: Ground) -> None:
        run, done = ground.run(), []
        with proxied(ground) as (proxy, at), engine_at(at) as engine, ThreadPoolExecutor() as pool:

            def work(tx: Any) -> None:
                done.append(1)
                write(tx)
                proxy.swallow_replies()
                pool.submit(cut_when_written)

            def cut_when_written() -> None:
                until(lambda: ground.effects() == [1], 30, "the server has committed")
                proxy.cut()
                proxy.flow()

            with pytest.raises(sqlalchemy.exc.OperationalError):
                run.in_transaction(work, engine)
        assert (done, ground.effects()) == ([1], [1])


class TestWhatCommitItselfMeets:
    @pytest.fixture
    def late(self, ground: Ground) -> Iterator[str]:
        """A table with a trigger that is called at COMMIT, and is not written yet."""
        ground.change("CREATE TABLE late (n INTEGER)")
        trigger(ground, "RETURN NULL")
        ground.change(
            "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION late()"
        )
        yield "INSERT INTO late VALUES (1)"
        ground.change("DROP TABLE late")

    def test_a_function_that_it_lacks_is_not_the_check(self, ground: Ground, late: str) -> None:
        trigger(ground, "PERFORM nowhere(); RETURN NULL")
        with pytest.raises(sqlalchemy.exc.ProgrammingError, match="nowhere"), ground.run().fence(ground.engine) as tx:
            tx.execute(text(late))

    def test_a_deadlock_is_told_as_one_and_not_as_a_change_of_the_fence(self, ground: Ground, late: str) -> None:
        trigger(ground, "RAISE EXCEPTION 'embrace' USING ERRCODE = '40P01'")
        with pytest.raises(sqlalchemy.exc.OperationalError, match="embrace"), ground.run().fence(ground.engine) as tx:
            tx.execute(text(late))
        with closing(driver_connection(ground.url)) as connection:
            with pytest.raises(psycopg.errors.DeadlockDetected), ground.run().fence(connection):
                connection.execute(late)
            assert connection.info.transaction_status is TransactionStatus.IDLE


def trigger(ground: Ground, body: str) -> None:
    ground.change(f"CREATE OR REPLACE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; END $$")


class TestWhatIsReportedIsWhatIs:
    @pytest.mark.parametrize("isolation", ["read committed", "serializable"])
    def test_whoever_swallows_that_a_commit_was_refused_is_told_again_and_nothing_is_written(
        self, ground: Ground, isolation: str
    ) -> None:
        run = ground.run(isolation=isolation)
        for number in (1, 2):
            with pytest.raises(sqlalchemy.exc.PendingRollbackError), run.fence(ground.engine) as tx:
                write(tx, number)
                with suppress(RuntimeError):
                    tx.commit()
        assert ground.effects() == []

    def test_what_django_has_marked_to_be_rolled_back_is_not_taken_for_committed(self, ground: Ground) -> None:
        with by_django(ground.url) as connection:
            from django.db.transaction import Atomic, TransactionManagementError

            with pytest.raises(TransactionManagementError), ground.run().fence(connection) as tx:
                write(tx)
                with suppress(ZeroDivisionError), Atomic(using=connection.alias, savepoint=False, durable=False):
                    raise ZeroDivisionError
        assert ground.effects() == []

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_block_of_psycopgs_that_is_never_left_leaves_nothing_open(self, ground: Ground, fails: bool) -> None:
        error = ZeroDivisionError if fails else psycopg.ProgrammingError
        with closing(driver_connection(ground.url, autocommit=True)) as connection:
            with pytest.raises(error), ground.run().fence(connection) as tx:
                block = connection.transaction()
                block.__enter__()
                write(tx)
                if fails:
                    raise ZeroDivisionError
            assert connection.info.transaction_status is TransactionStatus.IDLE
            assert connection.autocommit
        assert ground.effects() == []

    def test_whoever_listens_to_all_engines_writes_behind_the_fence_too(self, ground: Ground) -> None:
        run = ground.run()

        def log(connection: Any) -> None:
            write(connection, 7)

        with run.fence(ground.engine):
            pass
        event.listen(Engine, "commit", log)
        try:
            with run.fence(ground.engine) as tx:
                write(tx)
        finally:
            event.remove(Engine, "commit", log)
        assert ground.effects() == [1, 7]


class TestConnectionsOfAllKinds:
    def test_a_commit_of_the_connections_own_is_put_back(self, ground: Ground) -> None:
        with closing(driver_connection(ground.url)) as connection:
            connection.commit = own = connection.commit
            with ground.run().fence(connection) as tx:
                write(tx)
            assert vars(connection)["commit"] is own
        assert ground.effects() == [1]

    @pytest.mark.parametrize(("encoding", "key"), [("SQL_ASCII", "ключ"), ("LATIN1", "clé")])
    def test_keys_are_sent_in_the_connections_encoding(self, ground: Ground, encoding: str, key: str) -> None:
        run = ground.run_of(ground.run()._claim._replace(exclusive_key=key))
        with closing(driver_at(ground.url.sqlalchemy(), client_encoding=encoding)) as connection:
            for number in (1, 2):
                with run.fence(connection) as tx:
                    write(tx, number)
        assert ground.effects() == [1, 2]

    def test_behind_a_pooler_that_hands_out_transactions(self, ground: Ground, postgres: Postgres) -> None:
        run = ground.run()
        with PgBouncer(postgres, settings={"default_pool_size": "2"}) as bouncer:
            at = ground.url.sqlalchemy().set(host=bouncer.host, port=bouncer.port)
            with engine_at(at) as engine:
                for number in range(12):
                    with run.fence(engine) as tx:
                        write(tx, number)
                with pytest.raises(LeaseLost), run.fence(engine) as tx:
                    write(tx, 99)
                    ground.take_over(run)
        assert ground.effects() == list(range(12))

    @pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout"])
    def test_a_timeout_of_the_users_ends_the_wait_for_the_fence(self, ground: Ground, setting: str) -> None:
        errors = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable)
        run = ground.run()
        with closing(driver_connection(ground.url)) as connection, driver_connection(ground.url) as other:
            with run.fence(connection):
                pass  # so that the next one does not look, and holds no lock of the table
            with pytest.raises(errors), run.fence(connection) as tx:
                write(tx)
                connection.execute(f"SET LOCAL {setting} = 200")
                other.execute(f"LOCK TABLE {ground.fence_table} IN ACCESS EXCLUSIVE MODE")
            assert connection.info.transaction_status is TransactionStatus.IDLE
        assert ground.effects() == []


class TestOtherTablesSoonAfter:
    """That the look at the beginning is left out for a second is of one table alone."""

    @pytest.fixture
    def tenant(self, ground: Ground) -> Iterator[str]:
        name = "tenant"
        ground.change(f"CREATE SCHEMA {name}")
        database = open_database(f"{ground.url.text}&schema={name}", RUNTIME)
        install(database)
        database.close()
        yield name
        ground.change(f"DROP SCHEMA {name} CASCADE")

    def test_a_run_writes_to_one_tenant_after_the_other(self, ground: Ground, tenant: str) -> None:
        run = ground.run()
        with ground.engine.connect() as connection:
            for number, path in enumerate(("public", f"{tenant}, public") * 2):
                connection.execute(text(f"SET search_path TO {path}"))
                connection.commit()
                with run.fence(connection) as tx:
                    write(tx, number)
            connection.execute(text("RESET search_path"))
            connection.commit()
        assert ground.effects() == [0, 1, 2, 3]

    def test_a_lock_fences_one_schema_after_the_other(self, ground: Ground, tenant: str, tmp_path: Path) -> None:
        prefix = ground.url.prefix
        with locks.connect(f"sqlite:///{tmp_path}/locks.db") as store, store.lock("settlement") as lease:
            for number, schema in enumerate(("public", tenant) * 2):
                with lease.fence(ground.engine, prefix=prefix, schema=schema) as tx:
                    write(tx, number)
        assert ground.effects() == [0, 1, 2, 3]
