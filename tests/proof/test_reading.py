"""Evidence read from a ledger shows everything that is in it, on every database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from fencepost.core.identity import request_hash, request_key
from fencepost.core.retry import Rerun
from fencepost.core.runs import Requested
from fencepost.core.schedule import every, schedule_to_json
from fencepost.ledger import requests, schedules
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.reaping import reap
from fencepost.ledger.schedule_rows import NewSchedule
from fencepost.proof.checkers import check_all
from fencepost.proof.evidence import Evidence, JobRules, Timing
from fencepost.proof.history import History
from fencepost.proof.oracle import dues, every_us
from fencepost.proof.reading import read_ledger
from tests.ledger.scene import Scene, ending, failed, handed_back, skips, tick

SECOND_US = 1_000_000


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


def test_what_stands_for_a_stretch_says_from_when_and_for_how_many(scene: Scene) -> None:
    now = scene.now_us()
    scene.add(
        tick("nightly", now - 9, first_due_at_us=now - 99, ticks=3),
        tick("nightly", now - 200, first_due_at_us=now - 500, ticks=7, state="misfired"),
    )
    runs, attempts = read_ledger(scene.ledger)
    assert [(run.state, run.from_us, run.due_us, run.ticks, run.is_tick) for run in runs] == [
        ("queued", now - 99, now - 9, 3, True),
        ("misfired", now - 500, now - 200, 7, True),
    ]
    assert attempts == ()


def test_a_stretch_that_was_skipped_while_a_schedule_was_paused_is_seen(ledger: Ledger) -> None:
    schedules.put(ledger, NewSchedule("nightly", "job", schedule_to_json(every("1m")), "{}"))
    through = schedules.pause(ledger, "nightly").planned_through - 600 * SECOND_US
    table = ledger.tables.schedule
    ledger.write(lambda cursor: ledger.change(cursor, sa.update(table).values(planned_through=through)))
    until = schedules.resume(ledger, "nightly").planned_through
    [run], _ = read_ledger(ledger)
    expected = list(every_us(60, after_us=through, until_us=until))
    assert (run.state, run.ticks, run.is_tick) == ("skipped", 10, True)
    assert (run.from_us, run.due_us) == (expected[0], expected[-1])


def test_attempts_that_ended_and_the_one_under_way_are_seen(scene: Scene) -> None:
    [run_id] = scene.add(tick("nightly", scene.now_us(), exclusive_key="job:job"))
    first = scene.claim_one(node="node-a")
    scene.finish(failed(first, "queued"))
    second = scene.claim_one(node="node-b")
    reap(scene.connection, node="node-b", limit=10, decide=lambda job, crashes: Rerun())
    scene.finish(handed_back(scene.claim_one(node="node-c")))
    fourth = scene.claim_one(node="node-d")
    [run], attempts = read_ledger(scene.ledger)
    assert (run.id, run.state, run.attempts, run.failures, run.crashes) == (run_id, "running", 3, 1, 1)
    assert run.exclusive_key == "job:job"
    assert [(each.number, each.node, each.token, each.outcome) for each in attempts] == [
        (1, "node-a", first.token, "failed"),
        (2, "node-b", second.token, "lost"),
        (3, "node-d", fourth.token, None),
    ]
    assert [each.ended_us is None for each in attempts] == [False, False, True]


def test_keys_hashes_repetitions_and_what_is_waited_for_are_seen(scene: Scene) -> None:
    digest = request_hash("job", {})
    asked = Requested("job", "manual", origin_key=request_key("order-1"), params_hash=digest)
    later = Requested("job", "manual", available_at_us=scene.now_us() + 3600 * SECOND_US)
    first_id, _ = scene.add(asked, later)
    scene.finish(ending(scene.claim_one()))
    requests.retry(scene.ledger, first_id, by="me")
    runs, _ = read_ledger(scene.ledger)
    assert (runs[0].request_key, runs[0].payload_hash, runs[0].is_tick) == ("order-1", digest, False)
    assert [(run.state, run.waits_for, run.retry_of) for run in runs] == [
        ("succeeded", None, None),
        ("waiting", "time", None),
        ("queued", None, runs[0].id),
    ]


def test_a_ledger_that_was_used_as_it_should_be_passes_every_checker(scene: Scene) -> None:
    now = scene.now_us()
    first = now - now % SECOND_US - 30 * SECOND_US
    times = [first + number * SECOND_US for number in range(12)]
    key = {"exclusive_key": "job:job"}
    scene.add(*(tick("nightly", due, **key) for due in times[:4]))
    scene.add(tick("nightly", times[7], first_due_at_us=times[4], ticks=4, **key))
    scene.add(tick("nightly", times[-1], first_due_at_us=times[8], ticks=4, state="misfired"))
    while claims := scene.claim(decide=skips).claims:
        for claimed in claims:
            outcome = failed(claimed, "queued") if claimed.failures == 0 else ending(claimed)
            scene.finish(outcome)
    runs, attempts = read_ledger(scene.ledger)
    assert {run.state for run in runs} == {"succeeded", "skipped", "misfired"}
    evidence = Evidence(
        History(),
        Timing(2.0, 1.0, quiet_from=30.0, ended_at=60.0),
        due=dues("nightly", "job", times),
        runs=runs,
        attempts=attempts,
        jobs={"job": JobRules("forbid", 1, (0.0,), 3)},
        wall_us_at_0=now - 30 * SECOND_US,
    )
    assert check_all(evidence) == []
    assert [each.checker for each in check_all(Evidence(**_fields(evidence) | {"runs": runs[1:]}))] != []


def _fields(evidence: Evidence) -> dict[str, object]:
    return {name: getattr(evidence, name) for name in Evidence.__slots__}
