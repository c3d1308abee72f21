"""Reaping: what becomes of a dead node's runs, on each database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.retry import GiveUpLost, HoldForPerson, Rerun
from fencepost.core.runs import Requested
from fencepost.ledger.claiming import mine
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.reaping import Reaped, reap
from tests.ledger.scene import HOUR_US, Scene, ending


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


def rerun(job: str, crashes: int) -> Rerun | GiveUpLost | HoldForPerson:
    return Rerun()


def by_job(job: str, crashes: int) -> Rerun | GiveUpLost | HoldForPerson:
    fates = {
        "job": Rerun(),
        "once": GiveUpLost("crashed", f"lost {crashes} times"),
        "careful": HoldForPerson("a person decides"),
    }
    return fates[job]


def reaped(scene: Scene, decide=rerun, node: str = "dead", limit: int = 100) -> list[Reaped]:
    return reap(scene.connection, node=node, limit=limit, decide=decide)


def test_each_run_fares_as_its_policy_says(scene: Scene) -> None:
    ids = scene.add(*(Requested(job, "manual") for job in ("job", "once", "careful")))
    claims = scene.claim(node="dead", jobs=("job", "once", "careful")).claims
    got = reaped(scene, by_job)
    assert [(each.run_id, each.state) for each in got] == list(zip(ids, ("queued", "dead", "waiting"), strict=True))
    assert [each.token for each in got] == [each.token for each in claims]
    assert scene.states(ids) == ["queued", "dead", "waiting"]
    again, failed, held = (scene.run(run_id) for run_id in ids)
    assert again["ended_at"] is held["ended_at"] is None
    assert held["waits_for"] == "person"
    assert failed["error_code"] == "crashed"
    assert failed["ended_at"] is not None
    assert {each["crashes"] for each in (again, failed, held)} == {1}
    assert {each["failures"] for each in (again, failed, held)} == {0}


def test_losses_of_one_event_count_once(scene: Scene) -> None:
    run_id = scene.add_one()
    counted: list[int] = []

    def decide(job: str, crashes: int) -> Rerun | GiveUpLost | HoldForPerson:
        counted.append(crashes)
        return Rerun()

    def lost(*, once_in_us: int) -> int:
        scene.claim_one(node="dead")
        reap(scene.connection, node="dead", limit=100, decide=decide, once_in_us=once_in_us)
        return scene.run(run_id)["crashes"]

    assert [lost(once_in_us=HOUR_US) for _ in range(3)] == [1, 1, 1]
    scene.change("UPDATE {attempt} SET ended_at = ended_at - %s", 2 * HOUR_US)
    assert lost(once_in_us=HOUR_US) == 2
    assert counted == [1, 1, 1, 2]
    assert [each["outcome"] for each in scene.attempts(run_id)] == ["lost"] * 4


def test_deaths_of_workers_count_whatever_was_lost_a_moment_ago(scene: Scene) -> None:
    run_id = scene.add_one()
    for _ in range(2):
        scene.finish(ending(scene.claim_one(node="dead"), "queued", "lost", error_code="crashed"))
    scene.claim_one(node="dead")
    reap(scene.connection, node="dead", limit=100, decide=rerun, once_in_us=HOUR_US)
    assert scene.run(run_id)["crashes"] == 3


def test_lost_attempt_has_a_row_and_an_entry(scene: Scene) -> None:
    run_id = scene.add_one(schedule="s")
    claimed = scene.claim_one(node="dead")
    reaped(scene)
    [attempt] = scene.attempts(run_id)
    assert (attempt["number"], attempt["outcome"], attempt["node"]) == (1, "lost", "dead")
    assert (attempt["token"], attempt["started_at"]) == (claimed.token, claimed.claimed_at_us)
    [entry] = scene.journal()
    assert (entry["what"], entry["run_id"], entry["job"]) == ("run lost", run_id, "job")
    assert (entry["node"], entry["token"], entry["schedule"]) == ("dead", claimed.token, "s")


def test_late_finish_of_a_reaped_attempt_is_refused(scene: Scene) -> None:
    run_id = scene.add_one()
    claimed = scene.claim_one(node="dead")
    reaped(scene)
    assert scene.finish(ending(claimed)).refused == [run_id]
    assert scene.state(run_id) == "queued"
    again = scene.claim_one(node="alive")
    assert (again.attempt, again.crashes) == (2, 1)
    assert again.token > claimed.token
    assert scene.finish(ending(claimed)).refused == [run_id]
    assert scene.finish(ending(again)).refused == []
    assert [each["outcome"] for each in scene.attempts(run_id)] == ["lost", "succeeded"]


def test_key_is_freed_and_the_next_in_line_is_queued(scene: Scene) -> None:
    first, second = scene.add(*[Requested("once", "manual", exclusive_key="k")] * 2)
    scene.claim(node="dead", jobs=("once",))
    reaped(scene, by_job)
    assert scene.states([first, second]) == ["dead", "queued"]
    assert scene.claim_one(jobs=("once",)).run_id == second


def test_rerun_and_the_next_in_line_are_both_queued_and_one_runs(scene: Scene) -> None:
    first, second = scene.add(*[Requested("job", "manual", exclusive_key="k")] * 2)
    scene.claim(node="dead")
    reaped(scene)
    assert scene.states([first, second]) == ["queued", "queued"]
    assert len(scene.claim().claims) == 1
    assert sorted(scene.states([first, second])) == ["running", "waiting"]


def test_run_that_was_being_cancelled_is_cancelled(scene: Scene) -> None:
    run_id = scene.add_one()
    scene.claim(node="dead")
    scene.change("UPDATE {run} SET cancel_requested_at = 5")
    [got] = reaped(scene)
    assert got.state == scene.state(run_id) == "cancelled"
    assert scene.attempts(run_id)[0]["outcome"] == "lost"


def test_other_nodes_runs_are_left_alone(scene: Scene) -> None:
    scene.add(*[Requested("job", "manual")] * 4)
    scene.claim(node="dead", limit=2)
    alive = scene.claim(node="alive").claims
    assert len(reaped(scene)) == 2
    assert mine(scene.connection, node="alive") == alive
    assert reaped(scene) == []


def test_many_are_reaped_batch_by_batch(scene: Scene) -> None:
    scene.add(*[Requested("job", "manual")] * 20)
    scene.claim(node="dead")
    assert [len(reaped(scene, limit=8)) for _ in range(4)] == [8, 8, 4, 0]


def test_run_that_a_fenced_transaction_is_about_to_commit_under_is_passed_over(scene: Scene) -> None:
    if scene.ledger.dialect.name == "sqlite":
        pytest.skip("one writer at a time: nothing is ever locked")
    run_id, other_id = scene.add(*[Requested("job", "manual")] * 2)
    scene.claim(node="dead")
    effect = scene.ledger.connect("effect")
    with effect.transaction() as cursor:
        scene.statements.rows(
            cursor, "SELECT r.id FROM {run} r WHERE r.id = %s" + scene.ledger.dialect.spelling.share, run_id
        )
        assert [each.run_id for each in reaped(scene)] == [other_id]
    effect.rest()
    assert [each.run_id for each in reaped(scene)] == [run_id]
