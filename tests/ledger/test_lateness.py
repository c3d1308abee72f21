"""Runs past their SLA: found wherever they are, and noted once, on each database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.runs import Requested
from fencepost.ledger import lateness
from fencepost.ledger.lateness import note_late, note_late_ends
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.recording import record
from tests.ledger.scene import HOUR_US, Scene, ending, failed

LATE = {"sla_us": 1, "due_at_us": 5}


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


def missed(scene: Scene) -> list[int]:
    return [entry["run_id"] for entry in scene.journal() if entry["what"] == "sla missed"]


def test_what_is_late_is_noted_once_wherever_it_is(scene: Scene) -> None:
    running = scene.add_one(exclusive_key="k", **LATE)
    scene.claim_one()
    held = scene.add_one(**LATE)
    scene.finish(ending(scene.claim_one(), "waiting", "lost"))
    backing_off = scene.add_one(**LATE)
    scene.finish(failed(scene.claim_one(), "queued", delay_us=HOUR_US))
    behind = scene.add_one(exclusive_key="k", **LATE)
    scene.claim()
    queued = scene.add_one(**LATE)
    wanted = {running, held, backing_off, behind, queued}
    assert {scene.state(each) for each in wanted} == {"running", "queued", "waiting"}
    assert {late.run_id for late in note_late(scene.connection, jobs=["job"])} == wanted
    assert note_late(scene.connection, jobs=["job"]) == []
    assert sorted(missed(scene)) == sorted(wanted)


def test_what_is_claimed_while_it_is_looked_for_is_noted_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    # One look asks for one state after the other: a run that is claimed in between shows as queued and as running.
    monkeypatch.setattr(lateness, "_FIND", lateness._FIND * 2)
    run_id = scene.add_one(**LATE)
    assert [late.run_id for late in note_late(scene.connection, jobs=["job"])] == [run_id]
    assert missed(scene) == [run_id]


def test_a_note_says_by_when_and_how_it_stands(scene: Scene) -> None:
    run_id = scene.add_one(**LATE)
    claimed = scene.claim_one()
    note_late(scene.connection, jobs=["job"])
    [entry] = scene.journal()
    assert (entry["job"], entry["run_id"], entry["node"]) == ("job", run_id, "node")
    assert entry["token"] == claimed.token
    assert entry["reason"] == "it should have ended by 1970-01-01T00:00:00.000006Z, and it is still running"


def test_what_is_not_late_or_promises_nothing_or_is_another_job_is_left_alone(scene: Scene) -> None:
    scene.add_one()
    scene.add_one(sla_us=HOUR_US)
    scene.add_one(job="other", **LATE)
    assert note_late(scene.connection, jobs=["job"]) == []
    assert scene.journal() == []


def test_what_ended_late_is_noted_and_what_ended_in_time_is_not(scene: Scene) -> None:
    late, in_time = scene.add_one(**LATE), scene.add_one(sla_us=HOUR_US)
    scene.finish(*map(ending, scene.claim().claims))
    for _ in range(2):
        note_late_ends(scene.connection, run_ids={late, in_time})
    assert missed(scene) == [late]
    assert "and it ended at 2" in scene.journal()[0]["reason"]


def test_a_run_that_was_noted_while_it_ran_is_not_noted_again_when_it_ends(scene: Scene) -> None:
    run_id = scene.add_one(**LATE)
    claimed = scene.claim_one()
    note_late(scene.connection, jobs=["job"])
    scene.finish(ending(claimed))
    assert note_late_ends(scene.connection, run_ids={run_id}) == []
    assert missed(scene) == [run_id]


def test_many_are_noted_in_turns(scene: Scene) -> None:
    scene.add(*[Requested("job", "manual", **LATE)] * 250)
    counts = [len(note_late(scene.connection, jobs=["job"])) for _ in range(4)]
    assert counts == [100, 100, 50, 0]
    assert len(set(missed(scene))) == 250


@pytest.mark.parametrize("way", ["recorded", "planned"])
def test_a_promise_counts_from_when_a_run_may_start(scene: Scene, way: str) -> None:
    starts_at = scene.now_us() + HOUR_US
    request = Requested("job", "manual", available_at_us=starts_at, sla_us=1000)
    if way == "recorded":
        scene.connection.write(lambda cursor: record(scene.ledger, cursor, [request]))
    else:
        scene.add(request)
    assert scene.run(scene.last_id())["sla_at"] == starts_at + 1000
