"""Transactions in the ledger's own database, fenced by the row of their run, on each database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from fencepost.core.runtime import Runtime
from fencepost.engine.engines import engine_of
from fencepost.errors import LeaseLost, TransactionConflict, TransactionTooLong
from fencepost.fence import databases
from fencepost.fence.fence_options import FenceOptions
from fencepost.fence.ledger_transaction import LedgerTransaction
from fencepost.fence.run_row import FencedRun
from fencepost.fence.sources import quick
from fencepost.ledger.ledger import Ledger
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime
from tests.app.surroundings import RUNTIME
from tests.fence.paused_holder import between_check_and_commit

TOKEN = 1_000


class Parts(ThreadedRuntime):
    """Waits until it is told that the time is over, as after a suspension: `waited` says how long it was to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []
        self.passes, self.has_waited = threading.Semaphore(0), threading.Semaphore(0)

    def event(self) -> Any:
        return _Part(self)


class _Part(threading.Event):
    def __init__(self, runtime: Parts) -> None:
        super().__init__()
        self._runtime = runtime

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._runtime.waited.append(timeout)
        self._runtime.has_waited.release()
        assert self._runtime.passes.acquire(timeout=30)
        return self.is_set()


class Stand:
    """A run that is ours, a table of effects, and ways to begin."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.engine: Engine = engine_of(ledger)
        self.effects = f"{ledger.url.prefix}effect"
        self.refusals: list[str] = []
        run = ledger.tables.run
        with self.engine.begin() as connection:
            connection.execute(text(f"CREATE TABLE {self.effects} (n INTEGER)"))
            connection.execute(run.insert().values(id=1, state="running", token=TOKEN, **_REST))

    def begin(
        self,
        source: Engine | Connection | None = None,
        *,
        runtime: Runtime = RUNTIME,
        isolation: str = "read committed",
        check_trust: Callable[[], None] = lambda: None,
        **terms: Any,
    ) -> LedgerTransaction:
        row = FencedRun(
            self.ledger.tables.name("run"), self.ledger.tables.name("check_run"), 1, TOKEN, "run 1 of 'settle'"
        )
        kept = FenceOptions(runtime, isolation, 5.0, check_trust=check_trust, refused=self.refusals.append, **terms)
        return LedgerTransaction(source if source is not None else self.engine, row, kept)

    def write(self, connection: Connection, number: int = 1) -> None:
        connection.execute(text(f"INSERT INTO {self.effects} VALUES (:n)"), {"n": number})

    def effects_now(self) -> list[int]:
        with self.engine.connect() as connection:
            return [row[0] for row in connection.execute(text(f"SELECT n FROM {self.effects} ORDER BY n"))]

    def waiters(self) -> int:
        """How many wait for a lock on a row."""
        waiting = {
            "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
            "mysql": "SELECT variable_value FROM information_schema.global_status "
            "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
        }
        with self.engine.connect() as connection:
            return int(connection.execute(text(waiting[self.ledger.url.kind])).scalar_one())

    def take_over(self) -> None:
        """What claiming the run anew does to its row."""
        with self.engine.begin() as connection:
            connection.execute(self.ledger.tables.run.update().values(token=TOKEN + 1))


_REST = {
    "job": "settle",
    "type": "manual",
    "ticks": 1,
    "params": "{}",
    "params_hash": "",
    "priority": 0,
    "queue": "default",
    "attempts": 1,
    "failures": 0,
    "crashes": 0,
    "created_at": 1,
    "available_at": 1,
    "generation": 0,
}


@pytest.fixture
def stand(ledger: Ledger) -> Iterator[Stand]:
    stand = Stand(ledger)
    yield stand
    stand.engine.dispose()


ISOLATIONS = ("read committed", "repeatable read", "serializable")


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_what_is_still_ours_is_committed(stand: Stand, isolation: str) -> None:
    with stand.begin(isolation=isolation) as tx:
        stand.write(tx)
    assert stand.effects_now() == [1]
    assert stand.refusals == []


def test_an_exception_rolls_back(stand: Stand) -> None:
    with pytest.raises(ZeroDivisionError), stand.begin() as tx:
        stand.write(tx)
        raise ZeroDivisionError
    assert stand.effects_now() == []


def test_what_was_taken_over_before_does_not_even_begin(stand: Stand) -> None:
    stand.take_over()
    with pytest.raises(LeaseLost, match="when the transaction began; nothing was written"), stand.begin():
        pytest.fail("it began")
    assert len(stand.refusals) == 1


def test_a_run_that_was_only_asked_to_cancel_may_try_again(stand: Stand) -> None:
    """Under repeatable read PostgreSQL ends a transaction whose row changed at all; elsewhere it goes on."""

    def ask_to_cancel() -> None:
        with stand.engine.begin() as connection:
            connection.execute(stand.ledger.tables.run.update().values(cancel_requested_at=5))

    if stand.ledger.url.kind == "postgresql":
        with pytest.raises(TransactionConflict, match="try again"), stand.begin(isolation="repeatable read") as tx:
            stand.write(tx)
            ask_to_cancel()
        assert stand.effects_now() == []
    elif stand.ledger.url.kind == "mysql":
        with stand.begin(isolation="repeatable read") as tx:
            stand.write(tx)
            ask_to_cancel()
    assert stand.refusals == []


def test_without_trust_it_neither_begins_nor_commits(stand: Stand) -> None:
    answers = iter([None, LeaseLost("run 1", TOKEN, "gone")])

    def check_trust() -> None:
        if (error := next(answers)) is not None:
            raise error

    with pytest.raises(LeaseLost, match="gone"), stand.begin(check_trust=check_trust) as tx:
        stand.write(tx)
    assert stand.effects_now() == []


def test_a_commit_past_the_fence_is_refused(stand: Stand) -> None:
    with pytest.raises(RuntimeError, match="commits by itself"), stand.begin() as tx:
        stand.write(tx)
        tx.commit()
    assert stand.effects_now() == []


def test_a_connection_of_ones_own_is_used_and_left_open(stand: Stand) -> None:
    with stand.engine.connect() as connection:
        with stand.begin(connection) as tx:
            assert tx is connection
            stand.write(tx)
        assert not connection.closed
        stand.write(connection, 2)
        connection.commit()  # the guard is gone
    assert stand.effects_now() == [1, 2]


def test_a_connection_in_a_transaction_cannot_be_fenced_from_its_beginning(stand: Stand) -> None:
    with stand.engine.connect() as connection:
        connection.begin()
        with pytest.raises(RuntimeError, match="already in a transaction"), stand.begin(connection):
            pytest.fail("it began")


def test_the_end_of_the_run_commits_with_its_effects(stand: Stand) -> None:
    run = stand.ledger.tables.run

    def finish(connection: Connection) -> bool:
        ended = connection.execute(run.update().where(run.c.token == TOKEN).values(state="succeeded"))
        return ended.rowcount == 1

    with stand.begin(finish=finish) as tx:
        stand.write(tx)
    assert stand.effects_now() == [1]
    with pytest.raises(LeaseLost), stand.begin(finish=finish) as tx:
        stand.write(tx)
    assert stand.effects_now() == [1]


def test_savepoints_and_orm_sessions_work_inside(stand: Stand) -> None:
    from sqlalchemy.orm import Session

    with stand.begin() as tx:
        with pytest.raises(ZeroDivisionError), tx.begin_nested():
            stand.write(tx, 1)
            raise ZeroDivisionError
        session = Session(bind=tx)
        session.execute(text(f"INSERT INTO {stand.effects} VALUES (2)"))
        session.commit()
    assert stand.effects_now() == [2]


@pytest.mark.parametrize("source", ["postgresql://db", None])
def test_anything_but_a_connection_is_refused_with_what_is_taken(source: object) -> None:
    row = FencedRun("run", "check_run", 1, TOKEN, "run 1")
    terms = FenceOptions(RUNTIME, "read committed", 5.0, check_trust=lambda: None, refused=lambda _: None)
    with pytest.raises(TypeError, match="SQLAlchemy Engine or Connection"):
        LedgerTransaction(source, row, terms)


def test_another_database_is_told_from_the_ledgers(stand: Stand) -> None:
    row = FencedRun("nowhere_run", "check_nowhere", 1, TOKEN, "run 1")
    terms = FenceOptions(RUNTIME, "read committed", 5.0, check_trust=lambda: None, refused=lambda _: None)
    with pytest.raises(RuntimeError, match="not the ledger's database"), LedgerTransaction(stand.engine, row, terms):
        pytest.fail("it began")


class TestOnSqlite:
    @pytest.fixture
    def kind(self) -> str:
        return "sqlite"

    def test_nobody_can_take_over_while_it_writes(self, stand: Stand) -> None:
        began, ended = RUNTIME.event(), RUNTIME.event()

        def successor() -> None:
            began.set()
            stand.take_over()
            ended.set()

        with stand.begin() as tx:
            stand.write(tx)
            RUNTIME.spawn("successor", successor)
            assert began.wait(30)
        assert ended.wait(30)
        assert stand.effects_now() == [1]

    def test_a_transaction_that_waits_is_rolled_back_and_the_file_is_free(self, stand: Stand) -> None:
        with pytest.raises(TransactionTooLong, match="do not wait for anything"), stand.begin(sqlite_limit_s=0.1) as tx:
            stand.write(tx)
            stand.take_over()  # waits for the file: succeeds only because the limit ended the transaction
        assert stand.effects_now() == []

    def test_what_it_writes_after_the_limit_is_refused_not_committed(self, stand: Stand) -> None:
        with pytest.raises(TransactionTooLong), stand.begin(sqlite_limit_s=0.1) as tx:
            stand.write(tx)
            stand.take_over()
            stand.write(tx, 2)
        assert stand.effects_now() == []

    def test_a_statement_that_takes_too_long_is_interrupted(self, stand: Stand) -> None:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        with pytest.raises(TransactionTooLong), stand.begin(sqlite_limit_s=0.1) as tx:
            tx.execute(text(endless))

    def test_a_suspension_takes_a_tenth_of_the_time_however_long_it_is(self, stand: Stand) -> None:
        """It ended a run for good, for a transaction that took 0.2 s before and after the suspension."""
        runtime = Parts()
        with stand.begin(runtime=runtime, sqlite_limit_s=5.0) as tx:
            stand.write(tx)
            for _ in range(9):
                runtime.passes.release()
                assert runtime.has_waited.acquire(timeout=30)
            stand.write(tx, 2)
            runtime.passes.release(2)
        assert stand.effects_now() == [1, 2]
        assert runtime.waited[:9] == [0.5] * 9

    def test_after_ten_tenths_it_is_over(self, stand: Stand) -> None:
        runtime = Parts()
        runtime.passes.release(10)
        with pytest.raises(TransactionTooLong), stand.begin(runtime=runtime, sqlite_limit_s=5.0) as tx:
            stand.write(tx)
            stand.take_over()
        assert (stand.effects_now(), sum(runtime.waited)) == ([], 5.0)

    def test_the_connection_is_as_good_as_new_afterwards(self, stand: Stand) -> None:
        with stand.engine.connect() as connection:
            with pytest.raises(TransactionTooLong), stand.begin(connection, sqlite_limit_s=0.05) as tx:
                stand.take_over()
            connection.execute(stand.ledger.tables.run.update().values(token=TOKEN))
            connection.commit()
            with stand.begin(connection) as tx:
                stand.write(tx)
        assert stand.effects_now() == [1]


class TestOnServers:
    """Where others can write while a transaction is open."""

    @pytest.fixture(params=["postgresql", "mysql"])
    def kind(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.mark.parametrize("isolation", ISOLATIONS)
    def test_what_was_taken_over_meanwhile_is_not_committed(self, stand: Stand, isolation: str) -> None:
        with pytest.raises(LeaseLost, match="nothing was written"), stand.begin(isolation=isolation) as tx:
            stand.write(tx)
            stand.take_over()
        assert stand.effects_now() == []
        assert len(stand.refusals) == 1

    def test_a_successor_does_not_wait_for_the_transaction_only_for_its_last_step(self, stand: Stand) -> None:
        with pytest.raises(LeaseLost), stand.begin() as tx:
            stand.write(tx)
            stand.take_over()  # returns although the transaction is open: this very line would wait for ever otherwise

    def test_nobody_takes_over_between_the_check_and_the_commit(
        self, stand: Stand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The check's lock is what the successor has to wait for."""
        order: list[str] = []
        took = RUNTIME.event()

        def successor() -> None:
            stand.take_over()
            order.append("taken over")
            took.set()

        def pause() -> None:
            RUNTIME.spawn("successor", successor)
            until(lambda: stand.waiters() > 0, 30, what="the successor waits for the row")
            order.append("committed")

        monkeypatch.setattr(databases.ServerDatabase, "check", databases.ServerDatabase.check)
        monkeypatch.setattr(quick, "_sent", quick._sent)
        between_check_and_commit(pause)
        with stand.begin() as tx:
            stand.write(tx)
        assert took.wait(30)
        assert order == ["committed", "taken over"]
        assert stand.effects_now() == [1]
