"""What no living node has: it is warned of once, explained, and can be removed; what a living node has cannot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.rights import Scope
from fencepost.core.schedule import every, schedule_to_json
from fencepost.engine.why import Became, why
from fencepost.errors import LedgerRefused, NoSuchJob
from fencepost.ledger import journal, serving
from fencepost.ledger.deploys import sync_code
from fencepost.ledger.jobs import NewJob, jobs, register
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NewNode, join, leave
from fencepost.ledger.planning import Left, plan
from fencepost.ledger.removing import delete_schedule, forget
from fencepost.ledger.schedule_rows import NewSchedule
from fencepost.ledger.schedules import schedules
from fencepost.ledger.serving import note_missed
from tests.ledger.scene import HORIZON_US, HOUR_US, Scene, tick

POLICY = '{"type": "scheduled"}'


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


def declare(scene: Scene) -> None:
    register(scene.ledger, [NewJob("job", "scheduled", POLICY, "{}")], generation=0)
    minutely = NewSchedule("job", "job", schedule_to_json(every("1m")))
    sync_code(scene.ledger, generation=0, jobs=("job",), schedules=[minutely])


def live(scene: Scene) -> None:
    join(scene.ledger, NewNode("n", "shop-1", "g", 1, 0, "test", 1, ("default",), ("job",)))


@pytest.fixture
def unserved(scene: Scene) -> Scene:
    """A job with a schedule that is due; its last node left, and a planner has noticed."""
    declare(scene)
    live(scene)
    leave(scene.ledger, "n")
    scene.change("UPDATE {schedule} SET planned_through = planned_through - %s, next_due_at = 1", HOUR_US)
    plan(scene.connection, horizon_us=HORIZON_US, limit=8, decide=lambda now_us, row: Left.UNSERVED)
    return scene


def left_at(scene: Scene) -> int:
    return int(scene.rows("SELECT left_at FROM {node}")[0][0])


class TestWarning:
    def test_job_is_missed_ten_minutes_after_its_last_node_left_and_once(self, unserved: Scene) -> None:
        assert note_missed(unserved.connection) == []
        unserved.change("UPDATE {schedule} SET no_node_since = no_node_since - %s", serving.WARNED_AFTER_US)
        [missed] = note_missed(unserved.connection)
        assert (missed.job, missed.since_us) == ("job", left_at(unserved) - serving.WARNED_AFTER_US)
        assert "fencepost jobs forget job" in missed.reason
        assert note_missed(unserved.connection) == []
        [entry] = journal.entries(unserved.ledger, what="job without a node")
        assert (entry.job, entry.reason) == ("job", missed.reason)

    def test_of_many_jobs_a_few_are_noted_at_a_time(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        names = ("a", "b", "c")
        register(scene.ledger, [NewJob(name, "scheduled", POLICY, "{}") for name in names], generation=0)
        minutely = [NewSchedule(name, name, schedule_to_json(every("1m"))) for name in names]
        sync_code(scene.ledger, generation=0, jobs=names, schedules=minutely)
        scene.change("UPDATE {schedule} SET no_node_since = %s", scene.now_us() - HOUR_US)
        monkeypatch.setattr(serving, "NOTED_AT_ONCE", 2)
        noted = [[missed.job for missed in note_missed(scene.connection)] for _ in range(3)]
        assert noted == [["a", "b"], ["c"], []]

    def test_why_says_since_when_no_node_has_it(self, unserved: Scene) -> None:
        at_us = unserved.now_us() // 60_000_000 * 60_000_000
        [answer] = why(unserved.ledger, "job", at_us, scope=Scope.direct())
        assert answer.became is Became.NO_NODE
        assert "no living node has job 'job'" in answer.sentence

    def test_why_says_so_of_a_run_that_waits_in_vain(self, unserved: Scene) -> None:
        due_us = unserved.now_us() // 60_000_000 * 60_000_000 - HOUR_US
        unserved.add(tick("job", due_us))
        [answer] = why(unserved.ledger, "job", due_us, scope=Scope.direct())
        assert "but no living node has its job" in answer.sentence


class TestRemoving:
    def test_schedule_of_a_job_that_nobody_has_is_deleted_with_its_ticks(self, unserved: Scene) -> None:
        ids = unserved.add(*[tick("job", 60_000_000 * number) for number in range(5)])
        other = unserved.add_one()
        delete_schedule(unserved.ledger, "job", by="ann")
        assert schedules(unserved.ledger) == []
        assert set(unserved.states(ids)) == {"skipped"}
        assert unserved.state(other) == "queued"

    def test_schedule_in_the_code_of_a_living_node_is_not(self, scene: Scene) -> None:
        declare(scene)
        live(scene)
        with pytest.raises(LedgerRefused, match=r"the living node shop-1 has: it would come back"):
            delete_schedule(scene.ledger, "job", by="ann")

    def test_forgotten_job_leaves_nothing_to_be_claimed(self, unserved: Scene) -> None:
        ids = [*unserved.add(*[tick("job", 60_000_000 * number) for number in range(3)]), unserved.add_one()]
        assert forget(unserved.ledger, "job", by="ann", reason="gone") == (1, 4)
        assert set(unserved.states(ids)) == {"cancelled"}
        assert (jobs(unserved.ledger), schedules(unserved.ledger)) == ([], [])
        assert journal.entries(unserved.ledger, what="job forgotten")[0].by == "ann"
        with pytest.raises(NoSuchJob):
            forget(unserved.ledger, "job", by="ann")

    def test_job_that_comes_back_has_no_backlog(self, unserved: Scene) -> None:
        forgotten_us = unserved.now_us()
        forget(unserved.ledger, "job", by="ann")
        declare(unserved)
        [row] = schedules(unserved.ledger)
        assert row.planned_through >= forgotten_us

    def test_job_of_a_living_node_is_not_forgotten(self, scene: Scene) -> None:
        declare(scene)
        live(scene)
        with pytest.raises(LedgerRefused, match="shop-1 has job 'job'"):
            forget(scene.ledger, "job", by="ann")
