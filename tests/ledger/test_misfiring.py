"""Late ticks that nobody began: they follow the misfire policy, if no node that could run them lived at their time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.core.misfire import Misfire
from fencepost.core.runs import Requested
from fencepost.ledger import misfiring
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.misfiring import MisfireCounts, settle_late
from fencepost.ledger.nodes import NewNode, join
from fencepost.ledger.requests import retry
from tests.ledger.scene import HOUR_US, Scene, ending, skips, tick

MINUTE_US = 60_000_000


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


def settled(scene: Scene, misfire: str = "skip", *jobs: str) -> MisfireCounts:
    rules = dict.fromkeys(jobs or ("job",), Misfire.of(misfire, grace="10s"))
    return settle_late(scene.connection, node="me", queues=("default",), rules=rules)


def misfired(scene: Scene) -> int:
    return settled(scene).misfired


def minutely(scene: Scene, count: int, *, schedule: str = "s", **wishes: Any) -> list[int]:
    """Ticks of the last minutes, as a node of another program might have planned them; the last is an hour old."""
    last_us = scene.now_us() - HOUR_US
    dues = [last_us - number * MINUTE_US for number in reversed(range(count))]
    return scene.add(
        *[tick(schedule, due, first_due_at_us=due, window_start_us=due - MINUTE_US, **wishes) for due in dues]
    )


def lived(
    scene: Scene, began_us: int, ended_us: int | None = None, *, jobs: tuple[str, ...] = ("job",), **columns: Any
) -> None:
    name = f"node{began_us % 10_000_000}"
    queues = columns.get("queues", ("default",))
    join(scene.ledger, NewNode(name, name, "g", 1, 0, "test", 1, queues, jobs))
    scene.change("UPDATE {node} SET started_at = %s, left_at = %s WHERE id = %s", began_us, ended_us, name)


def rows(scene: Scene) -> list[tuple[Any, ...]]:
    found = scene.rows("SELECT id, state, ticks, first_due_at, due_at, window_start FROM {run} ORDER BY due_at")
    return [tuple(row) for row in found]


class TestOnce:
    def test_ticks_that_nobody_could_run_become_one_run(self, scene: Scene) -> None:
        ids = minutely(scene, 24, exclusive_key="job:job")
        before = rows(scene)
        assert settled(scene, "once") == MisfireCounts(merged=23)
        assert rows(scene) == [(ids[-1], "queued", 24, before[0][3], before[-1][4], before[0][5])]
        assert "24 due times" in scene.run(ids[-1])["why"]
        assert [claim.run_id for claim in scene.claim(decide=skips).claims] == [ids[-1]]

    def test_stretches_that_something_else_divides_stay_apart(self, scene: Scene) -> None:
        ids = minutely(scene, 7)
        scene.change("UPDATE {run} SET state = 'succeeded' WHERE id = %s", ids[3])
        assert settled(scene, "once") == MisfireCounts(merged=4)
        assert [(run_id, ticks) for run_id, _, ticks, *_ in rows(scene)] == [(ids[2], 3), (ids[3], 1), (ids[6], 3)]

    def test_many_are_put_together_batch_by_batch(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(misfiring, "BATCH", 5)
        ids = minutely(scene, 24)
        assert settled(scene, "once") == MisfireCounts(merged=23)
        assert [(run_id, ticks) for run_id, _, ticks, *_ in rows(scene)] == [(ids[-1], 24)]

    def test_schedules_are_not_mixed(self, scene: Scene) -> None:
        minutely(scene, 3)
        minutely(scene, 2, schedule="t")
        assert settled(scene, "once") == MisfireCounts(merged=3)
        assert [ticks for _, _, ticks, *_ in rows(scene)] == [3, 2] or [ticks for _, _, ticks, *_ in rows(scene)] == [
            2,
            3,
        ]


class TestOthers:
    def test_of_all_the_newest_stay(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(misfiring, "BATCH", 4)
        ids = minutely(scene, 10)
        assert settled(scene, "all:3") == MisfireCounts(misfired=7)
        assert scene.states(ids) == ["misfired"] * 7 + ["queued"] * 3

    def test_skipped_late_tick_says_so(self, scene: Scene) -> None:
        now_us = scene.now_us()
        late, timely, other = scene.add(
            tick("s", now_us - HOUR_US),
            tick("s", now_us - 1_000_000),
            tick("t", now_us - HOUR_US)._replace(job="other"),
        )
        assert misfired(scene) == 1
        assert scene.states([late, timely, other]) == ["misfired", "queued", "queued"]
        run = scene.run(late)
        assert run["why"] == "no node started it in time; misfire is skip, grace 10s"
        assert run["attempts"] == 0
        assert run["ended_at"] >= now_us
        assert misfired(scene) == 0

    def test_late_tick_that_waited_for_its_time_is_late_too(self, scene: Scene) -> None:
        [run_id] = minutely(scene, 1)
        scene.change("UPDATE {run} SET state = 'waiting', waits_for = 'time'")
        assert misfired(scene) == 1
        assert scene.state(run_id) == "misfired"


class TestBackPressure:
    @pytest.mark.parametrize("misfire", ["once", "skip", "all:1"])
    def test_tick_is_not_late_while_a_node_that_has_its_job_lives(self, scene: Scene, misfire: str) -> None:
        minutely(scene, 5)
        lived(scene, scene.now_us() - 2 * HOUR_US)
        assert settled(scene, misfire) == MisfireCounts()

    def test_node_of_another_program_or_queue_does_not_count(self, scene: Scene) -> None:
        minutely(scene, 5)
        lived(scene, scene.now_us() - 2 * HOUR_US, jobs=("other",))
        lived(scene, scene.now_us() - 2 * HOUR_US, queues=("heavy",))
        assert settled(scene, "skip") == MisfireCounts(misfired=5)

    def test_only_ticks_due_after_its_nodes_end_are_late(self, scene: Scene) -> None:
        ids = minutely(scene, 5)
        due_us = scene.run(ids[1])["due_at"]
        lived(scene, due_us - 10 * MINUTE_US, due_us + 1)
        assert settled(scene, "skip") == MisfireCounts(misfired=3)
        assert scene.states(ids) == ["queued"] * 2 + ["misfired"] * 3


def test_tick_that_jitter_puts_off_is_not_late_before_its_time(scene: Scene) -> None:
    now_us = scene.now_us()
    run_id = scene.add(tick("s", now_us - HOUR_US, available_at_us=now_us + 1_000_000))[0]
    assert misfired(scene) == 0
    assert scene.state(run_id) == "queued"


@pytest.mark.parametrize("misfire", ["once", "skip"])
def test_what_somebody_asked_for_is_never_too_late(scene: Scene, misfire: str) -> None:
    hour_ago_us = scene.now_us() - HOUR_US
    [old] = scene.add(tick("s", hour_ago_us))
    scene.finish(ending(scene.claim_one()))
    again = retry(scene.ledger, old, by="anna")
    filled = [
        scene.add_one(schedule="s", due_at_us=due_us, available_at_us=due_us, origin_key=f"backfill:s:{due_us}:x")
        for due_us in (hour_ago_us, hour_ago_us + MINUTE_US)
    ]
    assert settled(scene, misfire) == MisfireCounts()
    assert scene.states([again, *filled]) == ["queued"] * 3


def test_tick_that_was_begun_before_goes_on(scene: Scene) -> None:
    [run_id] = scene.add(tick("s", scene.now_us() - HOUR_US))
    scene.finish(ending(scene.claim_one(), "queued", "failed"))
    assert misfired(scene) == 0
    assert scene.state(run_id) == "queued"


def test_requests_without_a_schedule_are_left_alone(scene: Scene) -> None:
    [run_id] = scene.add(Requested("job", "manual", available_at_us=5))
    assert misfired(scene) == 0
    assert scene.state(run_id) == "queued"
