"""Fenced transactions and those who take the right to write away, in enumerated statement orders, at each isolation.

Whatever the order: no effect is committed once the fence has moved on, whoever was told to be refused wrote nothing,
whoever still is the holder gets its effect in, and nobody is kept waiting for longer than a lock may be waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from fencepost.core.fencing import FencingToken
from fencepost.core.retry import Rerun
from fencepost.core.runs import Claim, Requested
from fencepost.fence import databases, fence_row
from fencepost.fence.databases import TargetDatabase
from fencepost.fence.fence_options import FenceOptions
from fencepost.fence.ledger_transaction import LedgerTransaction
from fencepost.fence.run_row import FencedRun
from fencepost.fence.sources import quick, source_of
from fencepost.fence.sources.source import Source
from fencepost.fence.transaction import FencedTransaction
from fencepost.ledger import migrations
from fencepost.ledger.claiming import claim
from fencepost.ledger.dialects.statements import EndingRows
from fencepost.ledger.finishing import end_keyed, finish
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.reaping import reap
from fencepost.schema.effects import EffectTables
from fencepost.sql.spelling import SPELLING
from fencepost.sql.troubles import Trouble, trouble_of
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from tests.fence.stepping import (
    LEVELS,
    REFUSED,
    WRITTEN,
    Act,
    Begin,
    Observer,
    Play,
    Session,
    expanded,
    plays,
    sent_one_by_one,
    sizes_of,
    writes,
)
from tests.interleaving import Order, at_random, chosen, every, interrupted_once, play, spread
from tests.ledger.scene import Scene, ending, waits
from tests.ledger.steps import Watcher
from tests.servers import RUNTIME

WRITE_STEPS, REAP_STEPS, CLAIM_STEPS, FINISH_STEPS = 4, 12, 12, 11
PART = 6
FEW = 12  # in which a fault must be found
EFFECTS = "steps_effect"
TABLES = EffectTables("steps_")
FENCES = TABLES.name("fence")
PROCEDURES = ("steps_check_run", "steps_check_fence")


class Stage(NamedTuple):
    """A server with a ledger and a table of effects, three sessions, and the level their transactions have."""

    scene: Scene
    sessions: Sequence[Session]
    level: str

    @property
    def reads_take_locks(self) -> bool:
        return self.level == "serializable" and self.scene.ledger.dialect.name != "postgresql"

    def terms(self, **more: Any) -> FenceOptions:
        return FenceOptions(RUNTIME, self.level, 30.0, check_trust=lambda: None, refused=lambda why: None, **more)

    def empty(self) -> None:
        for table in ("run", "attempt", "exclusive", "journal"):
            self.scene.change(f"DELETE FROM {{{table}}}")
        self.scene.change(f"DELETE FROM {EFFECTS}")
        self.scene.change(f"DELETE FROM {FENCES}")


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with _server(request.param) as server:
        ledger = open_ledger(f"{server.url}?prefix=steps_", RUNTIME)
        migrations.migrate(ledger)
        scene = Scene(ledger)
        number = "bigint GENERATED ALWAYS AS IDENTITY" if request.param == "postgres" else "bigint AUTO_INCREMENT"
        scene.change(f"CREATE TABLE {EFFECTS} (id {number} PRIMARY KEY, token bigint, who varchar(191))")
        yield scene
        scene.close()
        ledger.close()


def _server(name: str) -> Postgres | MariaDB:
    if name == "postgres":
        return Postgres(settings={"fsync": "off", "deadlock_timeout": "100ms"})
    return MariaDB(settings={"innodb-flush-log-at-trx-commit": "0"})


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "_sent", sent_one_by_one)


@pytest.fixture(scope="module")
def sessions(scene: Scene) -> Iterator[list[Session]]:
    watcher = Watcher(scene.ledger)
    sessions = [Session(scene.ledger, watcher, name) for name in ("first", "second", "third")]
    yield sessions
    for each in (*sessions, watcher):
        each.close()


@pytest.fixture(params=LEVELS)
def stage(request: pytest.FixtureRequest, scene: Scene, sessions: list[Session]) -> Stage:
    return Stage(scene, sessions, request.param)


class Fault(Enum):
    """What may be wrong with a fence."""

    COMPARES_ONCE = "compares only at the beginning"
    COMPARES_WITHOUT_LOCK = "compares without a lock"

    def is_one(self, stage: Stage) -> bool:
        """Where every look takes a lock, one without is none."""
        return self is Fault.COMPARES_ONCE or not stage.reads_take_locks

    @contextmanager
    def planted(self, stage: Stage) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch, self._planted_in_procedures(stage.scene):
            if self is Fault.COMPARES_ONCE:
                patch.setattr(databases.ServerDatabase, "check", lambda self, source, fence: True)
                patch.setattr(databases.Postgres, "is_unbroken", lambda self, source: True)
            else:
                patch.setattr(databases.ServerDatabase, "sharing", "")
                patch.setattr(databases.Mysql, "sharing", "")
            yield

    @contextmanager
    def _planted_in_procedures(self, scene: Scene) -> Iterator[None]:
        """What goes along with COMMIT on PostgreSQL."""
        if scene.ledger.dialect.name != "postgresql":
            yield
            return
        definitions = f"SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE proname IN {PROCEDURES}"
        sound = [row[0] for row in scene.rows(definitions)]
        assert len(sound) == len(PROCEDURES)
        compares, locks = "IF NOT FOUND OR", " FOR SHARE"
        for each in sound:
            scene.change(
                each.replace(compares, "IF") if self is Fault.COMPARES_ONCE else each.replace(locks, ""),
            )
        yield
        for each in sound:
            scene.change(each)


@pytest.fixture(params=Fault, ids=lambda fault: fault.value)
def fault(request: pytest.FixtureRequest) -> Any:
    return request.param


def assert_sound(played: Play) -> None:
    assert played.faults == [], played.order
    answered = [each for each in played.answers if each in (WRITTEN, REFUSED)]
    assert len(played.effects) == answered.count(WRITTEN), played


def all_of(counts: Sequence[int]) -> Iterator[Order]:
    return chosen(every(counts), part=PART)


def some_of(counts: Sequence[int]) -> Iterator[Order]:
    """Of scenes that have too many orders to play them all."""
    return chosen((*interrupted_once(counts), *at_random(counts, 200)), part=PART)


def few_of(counts: Sequence[int]) -> Iterable[Order]:
    """What `make test` plays, and a fault must be found by. They do not count: they are no trials."""
    return spread(list(every(counts) if math.prod(counts) < 100 else interrupted_once(counts)), FEW)


# -- the run's row, in the ledger's own database


def on_run_row(stage: Stage, claimed: Claim, *, final: bool = False) -> Begin:
    tables = stage.scene.ledger.tables
    row = FencedRun(tables.name("run"), tables.name("check_run"), claimed.run_id, claimed.token, "the run")

    def begin(session: Session) -> LedgerTransaction:
        finish = ends(stage, claimed, session) if final else None
        return LedgerTransaction(session.engine, row, stage.terms(finish=finish))

    return begin


def ends(stage: Stage, claimed: Claim, session: Session) -> Callable[[Connection], bool]:
    """What `final=True` does: end the run in the effect's own transaction, and say whether it was ours."""

    def finish(connection: Connection) -> bool:
        cursor: Any = connection.connection.cursor()
        return end_keyed(cursor, stage.scene.statements, EndingRows([ending(claimed)]), ["k"])[1] == 1

    return finish


def holder_writes(stage: Stage, claimed: Claim, *, final: bool = False) -> Act:
    return writes(on_run_row(stage, claimed, final=final), EFFECTS, claimed.token)


def reaps(session: Session) -> Any:
    return reap(session.connection, node="one", limit=8, decide=lambda job, crashes: Rerun())


def heir_writes(stage: Stage) -> Act:
    """Claim the run, and write as its new holder; None if it was not to be had."""

    def act(session: Session) -> Any:
        got = claim(session.connection, node="two", jobs=("job",), queues=("default",), limit=8, decide=waits).claims
        return holder_writes(stage, got[0])(session) if got else None

    return act


def held(stage: Stage) -> Claim:
    stage.empty()
    stage.scene.add(Requested("job", "manual", exclusive_key="k"))
    [claimed] = stage.scene.claim(node="one").claims
    return claimed


def run_row_plays(
    stage: Stage,
    orders: Callable[[Sequence[int]], Iterable[Order]],
    acts: Callable[[Claim], Sequence[Act]],
    *others: int,
) -> Iterator[Play]:
    """Let the holder of a run, the first of `acts`, meet others, whose steps have been counted."""
    sizes = sizes_of(stage.sessions[0], acts(held(stage))[0], EFFECTS)
    observer = Observer(
        stage.scene.connection,
        EFFECTS,
        f"SELECT 0, token, '' FROM {stage.scene.ledger.tables.name('run')} WHERE state = 'running'",
    )
    chosen_ones = orders((len(sizes), *others))
    return plays(
        stage.sessions, observer, (expanded(order, [sizes]) for order in chosen_ones), lambda: acts(held(stage))
    )


class TestRunRow:
    def test_writer_whose_run_is_reaped(self, stage: Stage) -> None:
        for played in run_row_plays(stage, all_of, lambda claimed: [holder_writes(stage, claimed), reaps], REAP_STEPS):
            assert_sound(played)
            written, reaped = played.answers
            assert written == WRITTEN or reaped, (played.order, "was refused though it was the holder")

    def test_writer_whose_heir_writes_too(self, stage: Stage) -> None:
        def acts(claimed: Claim) -> list[Act]:
            return [holder_writes(stage, claimed), reaps, heir_writes(stage)]

        for played in run_row_plays(stage, some_of, acts, REAP_STEPS, CLAIM_STEPS + WRITE_STEPS):
            assert_sound(played)
            assert played.answers[2] in (WRITTEN, None), (played, "the heir was refused")

    def test_run_that_ends_with_its_effect_ends_once(self, stage: Stage) -> None:
        def acts(claimed: Claim) -> list[Act]:
            return [holder_writes(stage, claimed, final=True), reaps]

        for played in run_row_plays(stage, some_of, acts, REAP_STEPS):
            assert_sound(played)
            written, reaped = played.answers
            assert (written == WRITTEN) != bool(reaped), played
            [attempt] = stage.scene._all("attempt", "ORDER BY run_id")
            assert attempt["outcome"] == ("lost" if reaped else "succeeded"), played.order

    def test_writer_whose_run_is_ended_by_somebody_else(self, stage: Stage) -> None:
        """An effect of a thread that was left behind by its own run."""

        def acts(claimed: Claim) -> list[Act]:
            return [
                holder_writes(stage, claimed),
                lambda session: finish(session.connection, [ending(claimed)]).refused,
            ]

        for played in run_row_plays(stage, all_of, acts, FINISH_STEPS):
            assert_sound(played)
            assert played.answers[1] == [], played

    def test_few_orders_suffice_to_find_a_fault(self, stage: Stage, fault: Fault) -> None:
        with fault.planted(stage):
            trials = run_row_plays(stage, few_of, lambda claimed: [holder_writes(stage, claimed), reaps], REAP_STEPS)
            assert any(played.faults for played in trials) == fault.is_one(stage)


# -- the row of the table `fence`, in whichever database

FIRST, SECOND, THIRD = (FencingToken("k", token, f"grant {token}") for token in (100, 101, 102))
TWIN = SECOND._replace(grant_id="another grant")


def at_fence(stage: Stage, offered: FencingToken, *, is_raised: bool = False) -> Begin:
    """A transaction that raises the fence first, unless that has been done."""

    def begin(session: Session) -> FencedTransaction:
        row = fence_row.fence_row(offered, TABLES, what="the run")
        found_at = {(session.engine, row.table): -math.inf} if is_raised else {}
        return FencedTransaction(source_of(session.engine), lambda _: row, stage.terms(found_at=found_at))

    return begin


def comes(stage: Stage, offered: FencingToken, *, is_raised: bool = False) -> Act:
    return writes(at_fence(stage, offered, is_raised=is_raised), EFFECTS, offered.token, offered.grant_id)


def raises(stage: Stage, offered: FencingToken) -> Act:
    """Raise the fence, and write nothing."""

    def act(session: Session) -> None:
        source = source_of(session.engine)
        source.open()
        try:
            fence_row.fence_row(offered, TABLES, what="the run").ready(source, stage.terms())
        finally:
            source.close()

    return act


def fence_at(stage: Stage, offered: FencingToken | None) -> None:
    """Nothing but the fence, where somebody has raised it."""
    stage.empty()
    if offered is not None:
        key = SPELLING[stage.scene.ledger.url.kind].key
        stage.scene.change(
            f"INSERT INTO {FENCES} ({key}, token, grant_id, raised_at) VALUES (%s, %s, %s, 0)",
            *offered[:3],
        )


def fence_plays(
    stage: Stage,
    orders: Callable[[Sequence[int]], Iterable[Order]],
    acts: Sequence[Act],
    *,
    at: FencingToken | None,
    writes_to: str = EFFECTS,
) -> Iterator[Play]:
    """Let them meet at a fence that is raised to `at`; the later ones commit a write to `writes_to`."""

    def setting() -> Sequence[Act]:
        fence_at(stage, at)
        return acts

    sizes = []
    for act, table in zip(acts, (EFFECTS, writes_to, writes_to), strict=False):
        setting()
        sizes.append(sizes_of(stage.sessions[0], act, table, is_transaction=act is acts[0]))
    observer = Observer(stage.scene.connection, EFFECTS, f"SELECT 0, token, grant_id FROM {FENCES}")
    chosen_ones = orders([len(each) for each in sizes])
    return plays(stage.sessions, observer, (expanded(order, sizes) for order in chosen_ones), setting)


class TestFenceRow:
    def test_writer_whose_heir_raises_the_fence(self, stage: Stage) -> None:
        acts = [comes(stage, FIRST, is_raised=True), raises(stage, SECOND)]
        for played in fence_plays(stage, all_of, acts, at=FIRST, writes_to=FENCES):
            assert_sound(played)

    def test_writer_whose_heir_writes_too(self, stage: Stage) -> None:
        acts = [comes(stage, FIRST, is_raised=True), comes(stage, SECOND)]
        for played in fence_plays(stage, some_of, acts, at=FIRST):
            assert_sound(played)
            assert played.answers[1] == WRITTEN, (played, "the heir was refused")

    def test_two_who_are_the_first_at_the_fence(self, stage: Stage) -> None:
        acts = [comes(stage, FIRST), comes(stage, SECOND)]
        for played in fence_plays(stage, some_of, acts, at=None):
            assert_sound(played)
            assert played.answers[1] == WRITTEN, (played, "the heir was refused")

    def test_of_two_grants_with_one_token_one_writes(self, stage: Stage) -> None:
        acts = [comes(stage, SECOND), comes(stage, TWIN)]
        for played in fence_plays(stage, some_of, acts, at=None):
            assert_sound(played)
            assert sorted(played.answers) == [REFUSED, WRITTEN], played

    def test_writer_and_two_heirs(self, stage: Stage) -> None:
        acts = [comes(stage, FIRST, is_raised=True), comes(stage, SECOND), comes(stage, THIRD)]
        for played in fence_plays(stage, some_of, acts, at=FIRST):
            assert_sound(played)
            assert played.answers[2] == WRITTEN, (played, "the last heir was refused")

    def test_few_orders_suffice_to_find_a_fault(self, stage: Stage, fault: Fault) -> None:
        acts = [comes(stage, FIRST, is_raised=True), raises(stage, SECOND)]
        with fault.planted(stage):
            trials = fence_plays(stage, few_of, acts, at=FIRST, writes_to=FENCES)
            assert any(played.faults for played in trials) == fault.is_one(stage)

    def test_few_orders_suffice_to_find_a_raise_that_does_not_compare(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def writes_in_any_case(source: Source, database: TargetDatabase, row: fence_row.FenceRow) -> None:
            target = source.target
            database.begin_raising(source, row.table, wait_s=1.0)
            mark = fence_row._mark(target, row.table, row.key, database.locking(shared=False))
            fence_row._write(target, row, row.key, is_there=mark is not None, now_us=target.now_us())

        monkeypatch.setattr(fence_row, "_compared_and_raised", writes_in_any_case)
        trials = fence_plays(stage, few_of, [comes(stage, FIRST), comes(stage, SECOND)], at=FIRST)
        assert any(played.faults for played in trials)


def test_sessions_that_wait_for_each_other_are_noticed(stage: Stage) -> None:
    """The machinery above sees a deadlock: or that it saw none would mean nothing."""
    is_postgres = stage.scene.ledger.dialect.name == "postgresql"

    def locks(*ids: int) -> Act:
        def act(session: Session) -> str:
            try:
                with session.engine.begin() as tx:
                    if is_postgres:  # long enough to be seen, however busy the machine is
                        tx.exec_driver_sql("SET LOCAL deadlock_timeout = '1s'")
                    for each in ids:
                        tx.exec_driver_sql(f"UPDATE {EFFECTS} SET token = 1 WHERE id = {each}")
            except DBAPIError as error:
                return str(trouble_of(error.orig))
            return WRITTEN

        return act

    stage.empty()
    stage.scene.change(f"INSERT INTO {EFFECTS} (token, who) VALUES (0, ''), (0, '')")
    [(one,), (other,)] = stage.scene.rows(f"SELECT id FROM {EFFECTS}")
    playing = stage.sessions[:2]
    for session, act in zip(playing, (locks(one, other), locks(other, one)), strict=True):
        session.begin_session(act)
    stuck_s = play(playing, (0, 1))
    assert {session.outcome for session in playing} == {str(Trouble.DEADLOCK), WRITTEN}
    assert stuck_s > 0 or not is_postgres  # MariaDB looks for deadlocks before it waits
