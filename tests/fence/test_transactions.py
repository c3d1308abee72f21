"""Fenced transactions by every kind of connection, in the ledger's database and in another, on each server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from fencepost.engine.run import attempt_of
from fencepost.errors import LeaseLost
from fencepost.fence.target import target_of
from fencepost.ledger.journal import About
from tests.fence.grounds import EFFECTS, RUNTIME, WAYS, Ground, write

KINDS = ("sqlite", "postgresql", "mysql")
PLACES = ("ledger", "other")


def server_of(kind: str, request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")


def urls(kind: str, place: str, request: pytest.FixtureRequest, folder: Any) -> tuple[str, str]:
    """The URLs of a ledger and of where its jobs write to."""
    if kind == "sqlite":
        ledger = f"sqlite:///{folder}/ledger.db"
        return ledger, ledger if place == "ledger" else f"sqlite:///{folder}/other.db"
    server, prefix = server_of(kind, request), f"t{RUNTIME.new_id()[:10]}_"
    ledger = f"{server.url}?prefix={prefix}"
    return ledger, ledger if place == "ledger" else f"{other_database(server)}?prefix={prefix}"


def other_database(server: Any) -> str:
    import sqlalchemy

    url = sqlalchemy.make_url(server.url)
    url = url.set(drivername="postgresql+psycopg" if url.drivername == "postgresql" else "mysql+pymysql")
    name = f"other_{RUNTIME.new_id()[:10]}"
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.url.rpartition("/")[0] + f"/{name}"


@pytest.fixture(scope="module", params=[(kind, place) for kind in KINDS for place in PLACES], ids="-".join)
def shared_ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    kind, place = request.param
    ground = Ground(*urls(kind, place, request, tmp_path_factory.mktemp("ground")))
    yield ground
    ground.close()


@pytest.fixture
def ground(shared_ground: Ground) -> Ground:
    shared_ground.change(f"DELETE FROM {EFFECTS}")
    return shared_ground


@pytest.fixture(params=WAYS)
def source(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Any]:
    with WAYS[request.param](ground.url) as source:
        yield source


def needs_others_writing(ground: Ground) -> None:
    if ground.kind == "sqlite":
        pytest.skip("nobody else can write to the file meanwhile")


class TestEveryWay:
    def test_what_is_still_ours_is_committed(self, ground: Ground, source: Any) -> None:
        run = ground.run()
        with run.transaction(source) as tx:
            write(tx)
            assert ground.kind == "sqlite" or ground.effects() == []
        assert ground.effects() == [1]

    def test_the_block_gets_what_was_handed_in_or_what_it_makes(self, ground: Ground, source: Any) -> None:
        with ground.run().transaction(source) as tx:
            match type(source).__name__:
                case "Engine":
                    assert isinstance(tx, Connection)
                case "sessionmaker":
                    assert isinstance(tx, Session)
                case _:
                    assert tx is source

    def test_an_exception_rolls_back(self, ground: Ground, source: Any) -> None:
        run = ground.run()
        with pytest.raises(ZeroDivisionError), run.transaction(source) as tx:
            write(tx)
            raise ZeroDivisionError
        assert ground.effects() == []
        with run.transaction(source) as tx:
            write(tx, 2)
        assert ground.effects() == [2]

    def test_a_statement_that_fails_rolls_back_and_leaves_the_connection_usable(
        self, ground: Ground, source: Any
    ) -> None:
        run = ground.run()
        with pytest.raises(Exception, match="nowhere"), run.transaction(source) as tx:
            write(tx)
            target_of(tx).execute("INSERT INTO nowhere VALUES (1)")
        with run.transaction(source) as tx:
            write(tx, 2)
        assert ground.effects() == [2]

    def test_a_stale_writer_does_not_even_begin(self, ground: Ground, source: Any) -> None:
        run = ground.run()
        ground.take_over(run)
        with pytest.raises(LeaseLost, match="nothing was written"), run.transaction(source):
            pytest.fail("it began")
        (entry,) = ground.app.operations.journal(about=About(run_id=run.id))
        assert (entry.what, entry.token) == ("refused write", run.token)

    def test_a_writer_that_becomes_stale_does_not_commit(self, ground: Ground, source: Any) -> None:
        needs_others_writing(ground)
        run = ground.run()
        with pytest.raises(LeaseLost, match="when the transaction was about to commit"), run.transaction(source) as tx:
            write(tx)
            ground.take_over(run)
        assert ground.effects() == []
        with ground.run().transaction(source) as tx:
            write(tx, 2)
        assert ground.effects() == [2]

    @pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
    def test_at_each_isolation_the_stale_one_writes_nothing(self, ground: Ground, source: Any, isolation: str) -> None:
        needs_others_writing(ground)
        run = ground.run(isolation=isolation)
        with run.transaction(source) as tx:
            write(tx)
            assert isolation_now(tx) == isolation
        with pytest.raises(LeaseLost), run.transaction(source) as tx:
            write(tx, 2)
            ground.take_over(run)
        assert ground.effects() == [1]

    def test_silence_is_bounded_inside_and_everything_is_as_before_afterwards(
        self, ground: Ground, source: Any
    ) -> None:
        before = settings_of(source, ground)
        run = ground.run(isolation="serializable")
        with run.transaction(source) as tx:
            write(tx)
            assert silence_in(tx) in (5.0, None)
        assert settings_of(source, ground) == before
        ground.take_over(run)
        with pytest.raises(LeaseLost), run.transaction(source) as tx:
            write(tx, 2)
        assert settings_of(source, ground) == before

    def test_a_transaction_that_was_begun_before_is_refused(self, ground: Ground, source: Any) -> None:
        if type(source).__name__ in ("Engine", "sessionmaker"):
            return
        told = pytest.raises(RuntimeError, match="already in a transaction")
        with begun(source), told, ground.run().transaction(source):
            pytest.fail("it began")

    def test_a_commit_inside_the_block_is_refused_or_told(self, ground: Ground, source: Any) -> None:
        with pytest.raises(Exception, match=r"commit|atomic"), ground.run().transaction(source) as tx:
            write(tx)
            tx.commit()
            write(tx, 2)
        assert 2 not in ground.effects()
        assert ground.effects() == ([1] if type(source).__module__ == "sqlite3" else [])
        with ground.run().transaction(source) as tx:
            write(tx, 3)
        assert 3 in ground.effects()

    def test_a_commit_as_a_statement_is_told(self, ground: Ground, source: Any) -> None:
        run = ground.run()
        with pytest.raises(RuntimeError, match="ended inside the block"), run.transaction(source) as tx:
            write(tx)
            target_of(tx).execute("COMMIT")
            write_if_possible(tx, 2)
        assert ground.effects() == [1]
        (entry,) = ground.app.operations.journal(about=About(run_id=run.id))
        assert entry.what == "refused write"
        with ground.run().transaction(source) as tx:
            write(tx, 3)
        assert ground.effects() == [1, 3]

    def test_a_run_ends_with_its_effects_in_the_ledgers_database_and_nowhere_else(
        self, ground: Ground, source: Any
    ) -> None:
        run = ground.run()
        if not ground.is_ledgers:
            with pytest.raises(RuntimeError, match="in another database than the ledger"):
                run.transaction(source, final=True).__enter__()
            return
        with run.transaction(source, final=True) as tx:
            write(tx)
        assert ground.app.operations.run(run.id).state == "succeeded"
        with pytest.raises(LeaseLost), run.transaction(source):
            pytest.fail("it began")
        assert ground.effects() == [1]

    def test_many_transactions_raise_the_fence_once(self, ground: Ground, source: Any) -> None:
        run = ground.run()
        for number in range(3):
            with run.transaction(source) as tx:
                write(tx, number)
        assert ground.effects() == [0, 1, 2]
        mine = [row for row in ground.fences() if row[1] == run.token]
        if ground.is_ledgers:
            assert mine == []
        else:
            assert mine == [(run.fencing.key, run.token, f"{run.node}/{run.id}/1", run.node)]
            assert len({place for place, *_ in attempt_of(run).found_at}) == 1


def test_the_orm_is_not_imported_for_an_engine() -> None:
    """It takes longer than all else that a worker imports."""
    opens = "import sys, sqlalchemy as sa; from fencepost.fence.sources import source_of; "
    asks = "source_of(sa.create_engine('sqlite://')).open(); print('sqlalchemy.orm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", opens + asks], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def write_if_possible(tx: Any, number: int) -> None:
    """Where a statement is refused once the transaction has ended, that will do."""
    from contextlib import suppress

    with suppress(Exception):
        write(tx, number)


def isolation_now(tx: Any) -> str:
    target = target_of(tx)
    if target.kind == "postgresql":
        return str(target.execute("SHOW transaction_isolation").rows[0][0])
    query = "SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = connection_id()"
    target.execute("SELECT sleep(0.2)")  # what it shows was true a tenth of a second ago
    return str(target.execute(query).rows[0][0]).lower()


def silence_in(tx: Any) -> float | None:
    target = target_of(tx)
    if target.kind == "postgresql":
        return float(target.execute("SHOW idle_in_transaction_session_timeout").rows[0][0].removesuffix("s"))
    if target.kind == "mysql":
        return float(target.execute("SELECT @@SESSION.idle_transaction_timeout").rows[0][0])
    return None


_SETTINGS = {
    "postgresql": [f"SHOW {name}" for name in ("transaction_isolation", "idle_in_transaction_session_timeout")],
    "mysql": ["SELECT @@tx_isolation, @@idle_transaction_timeout, @@innodb_lock_wait_timeout, @@autocommit"],
    "sqlite": ["PRAGMA query_only"],
}


def settings_of(source: Any, ground: Ground) -> list[Any]:
    """What is set on the connection, as its user sees it, in a transaction that is rolled back."""
    match type(source).__name__:
        case "Engine":
            with source.connect() as connection:
                return settings_of(connection, ground)
        case "sessionmaker":
            with source() as session:
                return settings_of(session, ground)
    found: list[Any] = [target_of(source).execute(sql).rows for sql in _SETTINGS[ground.kind]]
    if hasattr(source, "vendor"):
        return [*found, source.get_autocommit(), getattr(source.connection, "isolation_level", None)]
    own = getattr(source, "isolation_level", None), getattr(source, "autocommit", None)
    source.rollback()
    return [*found, *(each for each in own if not callable(each))]


class begun:  # noqa: N801
    """A transaction of the user's own, by each driver's means."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.atomic: Any = None

    def __enter__(self) -> None:
        if hasattr(self.source, "vendor"):
            from django.db import transaction

            self.atomic = transaction.atomic(using=self.source.alias)
            self.atomic.__enter__()
        elif type(self.source).__module__ == "sqlite3":
            self.source.execute("BEGIN")
        elif type(self.source).__module__.startswith("pymysql"):
            self.source.begin()
        elif type(self.source).__module__.startswith("psycopg"):
            self.source.execute("BEGIN" if self.source.autocommit else "SELECT 1")
        else:
            target_of(self.source).execute("SELECT 1")

    def __exit__(self, *_: object) -> None:
        if self.atomic is not None:
            self.atomic.__exit__(None, None, None)
        else:
            self.source.rollback()
