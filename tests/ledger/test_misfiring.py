"""Misfiring: ticks that were planned and not begun in time are recorded as misfired, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.runs import Requested
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.misfiring import misfire_late
from fencepost.ledger.requests import retry
from tests.ledger.hot_scene import HOUR_US, Scene, ending, tick

GRACE_US = 10_000_000


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


def misfired(scene: Scene, job: str = "job") -> int:
    return misfire_late(scene.desk, job=job, grace_us=GRACE_US, why="too late")


def test_late_tick_misfires_and_says_so(scene: Scene) -> None:
    now_us = scene.now_us()
    late, timely, other = scene.add(
        tick("s", now_us - HOUR_US), tick("s", now_us - 1_000_000), tick("t", now_us - HOUR_US)._replace(job="other")
    )
    assert misfired(scene) == 1
    assert scene.states([late, timely, other]) == ["misfired", "queued", "queued"]
    run = scene.run(late)
    assert (run["why"], run["attempts"]) == ("too late", 0)
    assert run["ended_at"] >= now_us
    assert misfired(scene) == 0


def test_tick_that_jitter_puts_off_is_not_late_before_its_time(scene: Scene) -> None:
    now_us = scene.now_us()
    run_id = scene.add(tick("s", now_us - HOUR_US, available_at_us=now_us + 1_000_000))[0]
    assert misfired(scene) == 0
    assert scene.state(run_id) == "queued"


def test_what_somebody_asked_for_is_never_too_late(scene: Scene) -> None:
    hour_ago_us = scene.now_us() - HOUR_US
    [old] = scene.add(tick("s", hour_ago_us))
    scene.finish(ending(scene.claim_one()))
    again = retry(scene.ledger, old, by="anna")
    filled = scene.add_one(
        schedule="s", due_at_us=hour_ago_us, available_at_us=hour_ago_us, origin_key=f"backfill:s:{hour_ago_us}:x"
    )
    assert misfired(scene) == 0
    assert scene.states([again, filled]) == ["queued", "queued"]


def test_tick_that_was_begun_before_goes_on(scene: Scene) -> None:
    [run_id] = scene.add(tick("s", scene.now_us() - HOUR_US))
    scene.finish(ending(scene.claim_one(), "queued", "failed"))
    assert misfired(scene) == 0
    assert scene.state(run_id) == "queued"


def test_requests_without_a_schedule_are_left_alone(scene: Scene) -> None:
    [run_id] = scene.add(Requested("job", "manual", available_at_us=5))
    assert misfired(scene) == 0
    assert scene.state(run_id) == "queued"
