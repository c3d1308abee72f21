"""A run that was really claimed: its fenced transactions, its end within one, its progress. On each database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Connection, text

from fencepost import App, Run
from fencepost.core.overlap import START, WAIT
from fencepost.core.runs import Claim, Ending
from fencepost.engine.context import RunContext
from fencepost.engine.invoke import invoke
from fencepost.engine.run import attempt_of
from fencepost.errors import LeaseLost
from fencepost.ledger.claiming import claim
from fencepost.ledger.finishing import finish
from fencepost.ledger.journal import About
from fencepost.testing import until
from tests.app.surroundings import RUNTIME

NODE = "0" * 32


class Stand:
    """An application on a ledger, a table of effects, and claims by hand instead of a node."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.connection = app.ledger.connect("test")
        self.effects = f"{app.ledger.url.prefix}effect"
        self.engine = sqlalchemy.create_engine(app.ledger.url.sqlalchemy())
        with self.engine.begin() as connection:
            connection.execute(text(f"CREATE TABLE {self.effects} (n INTEGER)"))

    def claimed(self) -> list[Claim]:
        return claim(
            self.connection,
            node=NODE,
            jobs=list(self.app.jobs),
            queues=["default"],
            limit=10,
            decide=lambda job, *, key_is_taken, **_: WAIT if key_is_taken else START,
        ).claims

    def run_of(self, claimed: Claim) -> Run:
        return Run(self.app.jobs[claimed.job], claimed, self.app.worker_context())

    def effects_now(self) -> list[int]:
        with self.engine.connect() as connection:
            return [row[0] for row in connection.execute(text(f"SELECT n FROM {self.effects} ORDER BY n"))]

    def write(self, connection: Any, number: int = 1) -> None:
        connection.execute(text(f"INSERT INTO {self.effects} VALUES (:n)"), {"n": number})

    def bump(self) -> None:
        """What claiming a run anew does to its row."""
        run = self.app.ledger.tables.run
        with self.engine.begin() as connection:
            connection.execute(run.update().values(token=run.c.token + 1))


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url, ttl="5s")
    yield app
    app.close()


@pytest.fixture
def stand(app: App) -> Iterator[Stand]:
    stand = Stand(app)
    yield stand
    stand.connection.rest()
    stand.engine.dispose()


@pytest.fixture(params=["read committed", "repeatable read", "serializable"])
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def started(stand: Stand, **policy: Any) -> Run:
    handle = stand.app.job(name="settle", **policy)(lambda: None)
    handle.enqueue()
    (claimed,) = stand.claimed()
    return stand.run_of(claimed)


def isolation_of(tx: Connection) -> str:
    """Return that of the transaction itself: on MySQL it is not that of the session."""
    if tx.dialect.name == "postgresql":
        return tx.get_isolation_level().lower()
    mine = "SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = connection_id()"

    def asked() -> str | None:
        tx.execute(text("DO SLEEP(0.15)"))  # the list is made anew only if nobody has asked for 0.1 s
        return tx.execute(text(mine)).scalar()

    return until(asked, 30, "the server has listed it").lower()


def test_effects_are_committed_at_the_end_of_the_block(stand: Stand, isolation: str) -> None:
    run = started(stand, isolation=isolation)
    with run.transaction() as tx:
        stand.write(tx)
        assert tx.dialect.name == "sqlite" or isolation_of(tx) == isolation
    assert stand.effects_now() == [1]


def test_a_run_taken_over_writes_nothing_and_the_refusal_is_on_record(stand: Stand) -> None:
    run = started(stand)
    stand.bump()
    with pytest.raises(LeaseLost, match=rf"run {run.id} of 'settle'.*nothing was written"), run.transaction() as tx:
        stand.write(tx)
    assert stand.effects_now() == []
    (entry,) = stand.app.operations.journal(about=About(run_id=run.id))
    assert (entry.what, entry.token) == ("refused write", run.token)


def test_an_engine_of_ones_own_serves_as_well(stand: Stand) -> None:
    run = started(stand)
    with run.transaction(stand.engine) as tx:
        stand.write(tx)
    stand.bump()
    with pytest.raises(LeaseLost), run.transaction(stand.engine) as tx:
        stand.write(tx, 2)
    assert stand.effects_now() == [1]


def test_a_request_joins_the_fenced_transaction(stand: Stand) -> None:
    run = started(stand)
    follow_up = stand.app.job(name="follow-up")(lambda: None)
    with pytest.raises(ZeroDivisionError), run.transaction() as tx:
        follow_up.enqueue(tx=tx)
        raise ZeroDivisionError
    with run.transaction() as tx:
        made = follow_up.enqueue(tx=tx)
    assert [row.id for row in stand.app.operations.runs(job="follow-up")] == [made.run_id]


def test_a_final_transaction_ends_the_run_with_its_effects(stand: Stand, isolation: str) -> None:
    run = started(stand, isolation=isolation)
    with run.transaction(final=True) as tx:
        stand.write(tx)
    row = stand.app.operations.run(run.id)
    assert (row.state, row.ended_at is not None) == ("succeeded", True)
    (attempt,) = stand.app.operations.attempts(run.id)
    assert (attempt.number, attempt.outcome, attempt.token) == (1, "succeeded", run.token)
    assert stand.effects_now() == [1]


def test_the_outcome_of_a_run_that_ended_itself_is_recognized_as_done(stand: Stand) -> None:
    run = started(stand)
    with run.transaction(final=True):
        pass
    ending = Ending(run.id, run.attempt, run.token, state="succeeded", outcome="succeeded", took_us=5)
    assert finish(stand.connection, [ending]).refused == []
    assert len(stand.app.operations.attempts(run.id)) == 1


def test_a_final_transaction_frees_the_key_for_the_next_in_line(stand: Stand) -> None:
    handle = stand.app.job(name="settle", exclusive="one")(lambda: None)
    first, second = handle.enqueue(), handle.enqueue()
    (claimed,) = stand.claimed()
    assert claimed.run_id == first.run_id
    assert stand.app.operations.run(second.run_id).waits_for == "key"
    with stand.run_of(claimed).transaction(final=True):
        pass
    assert [each.run_id for each in stand.claimed()] == [second.run_id]


def test_a_final_transaction_of_a_run_that_is_no_longer_ours_changes_nothing(stand: Stand) -> None:
    run = started(stand)
    stand.bump()
    with pytest.raises(LeaseLost), run.transaction(final=True) as tx:
        stand.write(tx)
    assert stand.effects_now() == []
    assert stand.app.operations.run(run.id).state == "running"
    assert stand.app.operations.attempts(run.id) == []


def test_after_its_end_a_run_has_no_more_transactions(stand: Stand) -> None:
    run = started(stand)
    with run.transaction(final=True):
        pass
    with pytest.raises(LeaseLost), run.transaction() as tx:
        stand.write(tx)
    assert stand.effects_now() == []


def test_a_job_that_ends_itself_and_then_fails_has_succeeded(stand: Stand) -> None:
    @stand.app.job
    def settle(run: Run) -> None:
        with run.transaction(final=True) as tx:
            stand.write(tx)
        raise ValueError("too late to matter")

    settle.enqueue()
    (claimed,) = stand.claimed()
    outcome = invoke(settle.job, claimed, stand.app.worker_context())
    assert outcome.how == "succeeded"
    assert stand.app.operations.run(claimed.run_id).state == "succeeded"


def test_the_ledger_can_be_asked_whether_the_run_is_still_ours(stand: Stand) -> None:
    run = started(stand)
    run.check(ask_ledger=True)
    stand.bump()
    run.check()
    with pytest.raises(LeaseLost, match="given it to another node"):
        run.check(ask_ledger=True)


def shown(stand: Stand, run: Run) -> tuple[float | None, str | None]:
    row = stand.app.operations.run(run.id)
    return row.progress, row.progress_note


def test_progress_reaches_the_ledger_and_the_last_value_always_lands(stand: Stand) -> None:
    run = started(stand)
    for step in range(100):
        run.progress(step / 100, f"step {step}")
    until(lambda: shown(stand, run) == (0.99, "step 99"), 30, what="the last value lands though nothing follows it")


def test_progress_is_sent_about_twice_a_second_at_most(stand: Stand) -> None:
    run = started(stand)
    sent: list[float] = []
    context = stand.app.worker_context()

    class Counting(RunContext):
        __slots__ = ()

        def show(self, run_id: int, token: int, fraction: float, note: str | None) -> None:
            sent.append(RUNTIME.monotonic())
            super().show(run_id, token, fraction, note)

    attempt_of(run).context = Counting(context.node, context.runtime, context.ledger)
    began_at = RUNTIME.monotonic()
    while RUNTIME.monotonic() < began_at + 1.2:
        run.progress(0.5)
    attempt_of(run).settle()
    assert 2 <= len(sent) <= 5


def test_progress_that_is_on_its_way_lands_before_the_run_ends(stand: Stand) -> None:
    @stand.app.job
    def settle(run: Run) -> None:
        run.progress(0.1)
        run.progress(1.0, "done")

    settle.enqueue()
    (claimed,) = stand.claimed()
    invoke(settle.job, claimed, stand.app.worker_context())
    assert shown(stand, stand.run_of(claimed)) == (1.0, "done")


def is_sending() -> bool:
    return any(thread.name == "fencepost-progress" for thread in threading.enumerate())


def test_progress_does_not_disturb_a_transaction_that_is_open(stand: Stand, isolation: str) -> None:
    """Its row would change under the transaction, and under repeatable read that would end it."""
    run = started(stand, isolation=isolation)
    with run.transaction() as tx:
        stand.write(tx)
        run.progress(0.5, "inside")
        until(lambda: not is_sending(), 30, what="whoever would send it now has had the time to")
    until(lambda: shown(stand, run) == (0.5, "inside"), 30, what="it lands after the transaction")
    assert stand.effects_now() == [1]


def test_progress_of_a_run_that_is_no_longer_ours_is_not_shown(stand: Stand) -> None:
    run = started(stand)
    stand.bump()
    run.progress(0.5)
    attempt_of(run).settle()
    assert shown(stand, run) == (None, None)


class TestOnServers:
    """Where others can write while a transaction is open."""

    @pytest.fixture(params=["postgresql", "mysql"])
    def kind(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def test_a_run_taken_over_in_the_middle_writes_nothing(self, stand: Stand, isolation: str) -> None:
        run = started(stand, isolation=isolation)
        with pytest.raises(LeaseLost, match="nothing was written"), run.transaction() as tx:
            stand.write(tx)
            stand.bump()
        assert stand.effects_now() == []
        assert [entry.what for entry in stand.app.operations.journal(about=About(run_id=run.id))] == ["refused write"]

    def test_silence_inside_a_transaction_is_bounded_by_the_server(self, stand: Stand) -> None:
        silence: dict[str, Callable[[Any], float]] = {
            "postgresql": lambda tx: float(tx.execute(text("SHOW idle_in_transaction_session_timeout")).scalar()[:-1]),
            "mysql": lambda tx: float(tx.execute(text("SELECT @@idle_transaction_timeout")).scalar()),
        }
        kind = stand.app.ledger.url.kind
        with started(stand).transaction(stand.engine) as tx:
            assert silence[kind](tx) == 5
        with stand.engine.connect() as connection:
            if kind == "mysql":
                assert silence[kind](connection) == 0, "and the connection is given back as it was"
