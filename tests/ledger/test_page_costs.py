"""What pages ask about a few jobs costs the same, however many runs of these jobs there are in history.

Nothing is timed: the databases count their own work. On SQLite, which knows nothing of how many rows an index leads
to, each of these questions used to read all runs of the jobs, or of the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost.ledger import history
from fencepost.ledger.held_keys import key_holders, key_waiters
from fencepost.ledger.history import RunFilter, running_by_node, runs
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.parts import parts_of
from tests.ledger.scene import Scene
from tests.ledger.test_plans import LITTLE, MUCH, RUN, analyze, insert_many
from tests.ledger.work_meter import metered

JOBS = ("job", "other")

Question = Callable[[Scene], object]


class Metered:
    """A ledger that reads by the metered connection."""

    def __init__(self, scene: Scene) -> None:
        self.read = scene.connection.read
        self._ledger = scene.ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


def _parts(scene: Scene) -> object:
    return parts_of(Metered(scene), 7, jobs=JOBS)


def _holders(scene: Scene) -> object:
    return scene.connection.read(lambda cursor: key_holders(scene.ledger, cursor, after="", limit=10, jobs=JOBS))


def _waiters(scene: Scene) -> object:
    return scene.connection.read(lambda cursor: key_waiters(scene.ledger, cursor, after="", limit=10, jobs=JOBS))


def _by_node(scene: Scene) -> object:
    return running_by_node(Metered(scene), jobs=JOBS)


def _of_schedule(scene: Scene) -> object:
    return runs(Metered(scene), RunFilter(schedule="often"), limit=20)


def _of_schedule_and_jobs(scene: Scene) -> object:
    return runs(Metered(scene), RunFilter(schedule="often", jobs=JOBS), limit=20)


def _why(scene: Scene) -> object:
    return history.why(Metered(scene), "often", 100, jobs=JOBS)


QUESTIONS = (_parts, _holders, _waiters, _by_node, _of_schedule, _of_schedule_and_jobs, _why)


@pytest.fixture
def scene(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(history, "_FEW_OF_SCHEDULE", LITTLE // 2)  # so that the schedule has many runs from the start
    scene = Scene(ledger)
    yield scene
    scene.close()


def _add(scene: Scene, count: int) -> None:
    row = RUN | {"job": "'job'", "state": "'succeeded'", "schedule": "'often'", "due_at": "n.n"}
    ids = f"n.n + {scene.last_id()}"
    is_lite = scene.ledger.dialect.name == "sqlite"
    key = f"('tick:' || ({ids}) || ':often')" if is_lite else f"concat('tick:', {ids}, ':often')"
    insert_many(scene, "run", row | {"id": ids, "origin_key": key}, count)
    if scene.ledger.dialect.weighs_sorting:  # by what it knows of the table, as a server does after a while by itself
        analyze(scene)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.__name__.strip("_"))
def test_a_question_of_a_page_reads_no_more_where_its_jobs_have_a_long_history(
    scene: Scene, question: Question
) -> None:
    def work() -> int:
        with metered(scene.connection) as meter:
            return [meter.work(lambda: question(scene)) for _ in range(2)][-1]

    _add(scene, LITTLE)
    little = work()
    _add(scene, MUCH)
    assert work() <= 1.5 * little + 40
