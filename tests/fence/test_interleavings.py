"""Fenced transactions and those who take the run away, in enumerated statement orders, at each level of isolation.

Whatever the order: no effect is committed once the fence has moved on, whoever was told to be refused wrote nothing,
whoever still is the holder gets its effect in, and nobody is kept waiting for longer than a lock may be waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection

from fencepost.core.retry import Rerun
from fencepost.core.runs import Claim, Requested
from fencepost.fence import run_row
from fencepost.fence.ledger_transaction import LedgerTransaction
from fencepost.fence.run_row import RunRow, Terms
from fencepost.ledger import migrations
from fencepost.ledger.claiming import claim
from fencepost.ledger.dialects.hot import Endings
from fencepost.ledger.finishing import end_keyed, finish
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.reaping import reap
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from tests.fence.stepping import LEVELS, REFUSED, WRITTEN, Act, Begin, Observer, Play, Session, plays, writes
from tests.interleaving import Order, at_random, chosen, every, interrupted_once, spread
from tests.ledger.conftest import RUNTIME
from tests.ledger.hot_scene import Scene, ending, waits
from tests.ledger.steps import Stopping, Watcher

WRITE_STEPS, REAP_STEPS, CLAIM_STEPS, FINISH_STEPS = 4, 12, 12, 11
PART = 16


class Stage(NamedTuple):
    """A server with a ledger and a table of effects, three sessions, and the level their transactions have."""

    scene: Scene
    sessions: Sequence[Session]
    level: str
    effects: str

    @property
    def reads_take_locks(self) -> bool:
        return self.level == "serializable" and self.scene.ledger.dialect.name != "postgresql"


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with _server(request.param) as server:
        ledger = open_ledger(f"{server.url}?prefix=steps_", RUNTIME)
        migrations.migrate(ledger)
        scene = Scene(ledger)
        number = "bigint GENERATED ALWAYS AS IDENTITY" if request.param == "postgres" else "bigint AUTO_INCREMENT"
        scene.change(f"CREATE TABLE steps_effect (id {number} PRIMARY KEY, token bigint, who varchar(191))")
        yield scene
        scene.close()
        ledger.close()


def _server(name: str) -> Postgres | MariaDB:
    if name == "postgres":
        return Postgres(settings={"fsync": "off", "deadlock_timeout": "100ms"})
    return MariaDB(settings={"innodb-flush-log-at-trx-commit": "0"})


@pytest.fixture(scope="module")
def sessions(scene: Scene) -> Iterator[list[Session]]:
    watcher = Watcher(scene.ledger)
    sessions = [Session(scene.ledger, watcher, name) for name in ("first", "second", "third")]
    yield sessions
    for each in (*sessions, watcher):
        each.close()


@pytest.fixture(params=LEVELS)
def stage(request: pytest.FixtureRequest, scene: Scene, sessions: list[Session]) -> Stage:
    return Stage(scene, sessions, request.param, "steps_effect")


def assert_sound(played: Play) -> None:
    assert played.faults == [], played.order
    answered = [each for each in played.answers if each in (WRITTEN, REFUSED)]
    assert len(played.effects) == answered.count(WRITTEN), played


# -- the run's row, in the ledger's own database


def on_run_row(stage: Stage, claimed: Claim, *, final: bool = False) -> Begin:
    row = RunRow(stage.scene.ledger.tables.name("run"), claimed.run_id, claimed.token, "the run")

    def begin(session: Session) -> LedgerTransaction:
        finish = ends(stage, claimed, session) if final else None
        terms = Terms(RUNTIME, stage.level, 30.0, check_trust=lambda: None, refused=lambda why: None, finish=finish)
        return LedgerTransaction(session.engine, row, terms)

    return begin


def ends(stage: Stage, claimed: Claim, session: Session) -> Callable[[Connection], bool]:
    """What `final=True` does: end the run in the effect's own transaction, and say whether it was ours."""

    def finish(connection: Connection) -> bool:
        cursor: Any = Stopping(connection.connection.cursor(), session)
        return end_keyed(cursor, stage.scene.hot, Endings([ending(claimed)]), ["k"])[1] == 1

    return finish


def holder_writes(stage: Stage, claimed: Claim) -> Act:
    return writes(on_run_row(stage, claimed), stage.effects, claimed.token)


def reaps(session: Session) -> Any:
    return reap(session.desk, node="one", limit=8, decide=lambda job, crashes: Rerun())


def claims(session: Session) -> Claim | None:
    got = claim(session.desk, node="two", jobs=("job",), queues=("default",), limit=8, decide=waits).claims
    return got[0] if got else None


def heir_writes(stage: Stage) -> Act:
    """Claim the run, and write as its new holder; None if it was not to be had."""

    def act(session: Session) -> Any:
        claimed = claims(session)
        return None if claimed is None else holder_writes(stage, claimed)(session)

    return act


def held(stage: Stage) -> Claim:
    for table in ("run", "attempt", "exclusive", "journal"):
        stage.scene.change(f"DELETE FROM {{{table}}}")
    stage.scene.change(f"DELETE FROM {stage.effects}")
    stage.scene.add(Requested("job", "manual", exclusive_key="k"))
    [claimed] = stage.scene.claim(node="one").claims
    return claimed


def run_row_plays(stage: Stage, orders: Iterator[Order], acts: Callable[[Claim], Sequence[Act]]) -> Iterator[Play]:
    mark = f"SELECT 0, token, '' FROM {stage.scene.ledger.tables.name('run')} WHERE state = 'running'"
    observer = Observer(stage.scene.desk, stage.effects, mark)
    return plays(stage.sessions, observer, orders, lambda: acts(held(stage)))


class TestRunRow:
    def test_writer_whose_run_is_reaped(self, stage: Stage) -> None:
        orders = chosen(every((WRITE_STEPS, REAP_STEPS)), part=PART)
        for played in run_row_plays(stage, orders, lambda claimed: [holder_writes(stage, claimed), reaps]):
            assert_sound(played)
            written, reaped = played.answers
            assert written == WRITTEN or reaped, (played.order, "was refused though it was the holder")

    def test_writer_whose_heir_writes_too(self, stage: Stage) -> None:
        counts = (WRITE_STEPS, REAP_STEPS, CLAIM_STEPS + WRITE_STEPS)
        orders = chosen((*interrupted_once(counts), *at_random(counts, 200)), part=PART)
        for played in run_row_plays(
            stage, orders, lambda claimed: [holder_writes(stage, claimed), reaps, heir_writes(stage)]
        ):
            assert_sound(played)
            assert played.answers[2] in (WRITTEN, None), (played, "the heir was refused")

    def test_run_that_ends_with_its_effect_ends_once(self, stage: Stage) -> None:
        def acts(claimed: Claim) -> list[Act]:
            return [writes(on_run_row(stage, claimed, final=True), stage.effects, claimed.token), reaps]

        counts = (FINISH_STEPS, REAP_STEPS)
        for played in run_row_plays(
            stage, chosen((*interrupted_once(counts), *at_random(counts, 100)), part=PART), acts
        ):
            assert_sound(played)
            written, reaped = played.answers
            assert (written == WRITTEN) != bool(reaped), played
            [attempt] = stage.scene._all("attempt", "ORDER BY run_id")
            assert attempt["outcome"] == ("lost" if reaped else "succeeded"), played.order

    def test_writer_whose_run_is_ended_by_somebody_else(self, stage: Stage) -> None:
        """An effect of a thread that was left behind by its own run."""

        def acts(claimed: Claim) -> list[Act]:
            return [holder_writes(stage, claimed), lambda session: finish(session.desk, [ending(claimed)]).refused]

        for played in run_row_plays(stage, chosen(every((WRITE_STEPS, FINISH_STEPS)), part=PART), acts):
            assert_sound(played)
            assert played.answers[1] == [], played

    @pytest.mark.parametrize("bug", ["compares only at the beginning", "compares without a lock"])
    def test_few_orders_suffice_to_find_a_fence_that(
        self, stage: Stage, bug: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        check = run_row._Server.reads if bug == "compares without a lock" else lambda self, connection, row: True
        if check is run_row._Server.reads and stage.reads_take_locks:
            return  # then that is no bug
        monkeypatch.setattr(run_row._Server, "check", check)
        orders = iter(spread(list(every((WRITE_STEPS, REAP_STEPS))), PART))
        trials = run_row_plays(stage, orders, lambda claimed: [holder_writes(stage, claimed), reaps])
        assert any(played.faults for played in trials)
