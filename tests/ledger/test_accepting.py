"""A restored ledger that is accepted: what becomes of the nodes and runs that the dump has as living and running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.restored import Memory
from fencepost.core.schedule import every, schedule_to_json
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NewNode, join, living_nodes
from fencepost.ledger.restoring import Pending, accept, as_copy
from fencepost.ledger.schedule_rows import NewSchedule
from fencepost.ledger.schedules import end_pauses, put, schedule
from fencepost.ledger.standing import advance, standing
from tests.ledger.scene import Scene

MINUTE_US = 60_000_000


def node(name: str) -> NewNode:
    return NewNode(name, name, "g", 1, 0, "0.1.0/0004", 1, ("default",), ("job",))


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    """A ledger in which a node runs something."""
    scene = Scene(ledger)
    join(ledger, node("former"))
    scene.add_one()
    assert len(scene.claim(node="former").claims) == 1
    yield scene
    scene.close()


def test_nodes_of_the_dump_are_dead_and_those_that_came_since_live(scene: Scene) -> None:
    ledger = scene.ledger
    identity = ledger.tables.name("identity")
    scene.change(f"UPDATE {identity} SET beat_at = {scene.now_us()}")  # the last that is on record of before
    join(ledger, node("newcomer"))
    accept(ledger, by="ann", reason="a dump")
    assert [each.id for each in living_nodes(ledger)] == ["newcomer"]
    assert ledger.read(lambda cursor: standing(ledger, cursor)).held_why is None


@pytest.mark.parametrize("runs", [Pending.HOLD, Pending.CANCEL])
def test_what_ran_in_the_dump_is_lost_and_no_crash(scene: Scene, runs: Pending) -> None:
    accept(scene.ledger, by="ann", reason="a dump", runs=runs)
    [(state, crashes, attempts)] = scene.rows("SELECT state, crashes, attempts FROM {run} WHERE attempts > 0")
    assert (state, crashes, attempts) == ("waiting" if runs is Pending.HOLD else "cancelled", 0, 1)


def paused_in_the_dump(scene: Scene, until_minutes_ago: int | None) -> int:
    """Add a schedule that the dump, of an hour ago, has as paused; return what time it is."""
    put(scene.ledger, NewSchedule("s", "job", schedule_to_json(every("1m"))))
    now_us = scene.now_us()
    until_us = None if until_minutes_ago is None else now_us - until_minutes_ago * MINUTE_US
    scene.change(
        "UPDATE {schedule} SET paused_at = %s, paused_until = %s, planned_through = %s, next_due_at = NULL",
        now_us - 61 * MINUTE_US, until_us, now_us - 60 * MINUTE_US,
    )  # fmt: skip
    return now_us


def skipped(scene: Scene) -> list[tuple[str, int]]:
    return [(why, ticks) for why, ticks in scene.rows("SELECT why, ticks FROM {run} WHERE schedule = 's'")]


@pytest.mark.parametrize("is_copy", [False, True])
def test_what_was_due_since_a_pause_ended_after_the_dump_is_not_run_again(scene: Scene, is_copy: bool) -> None:
    now_us = paused_in_the_dump(scene, until_minutes_ago=30)
    (as_copy if is_copy else accept)(scene.ledger, by="ann", reason="a dump")
    end_pauses(scene.ledger)
    [(why, ticks)] = skipped(scene)
    assert why == ("this ledger is a copy" if is_copy else "restored: unknown")
    assert ticks in (60, 61)  # a minute may have passed meanwhile
    found = schedule(scene.ledger, "s")
    assert found.planned_through >= now_us
    if is_copy:  # it was made at run time
        assert (found.paused_at is not None, found.paused_until, found.next_due_at) == (True, None, None)
    else:
        assert (found.paused_at, found.next_due_at is not None) == (None, True)
        assert [each["what"] for each in scene.journal()].count("schedule resumed") == 1


@pytest.mark.parametrize("until_minutes_ago", [None, -30])
def test_schedule_whose_pause_has_not_ended_stays_paused(scene: Scene, until_minutes_ago: int | None) -> None:
    paused_in_the_dump(scene, until_minutes_ago)
    accept(scene.ledger, by="ann", reason="a dump")
    assert skipped(scene) == []
    assert schedule(scene.ledger, "s").paused_at is not None


def test_what_a_living_node_planned_after_a_pause_is_not_planned_again(scene: Scene) -> None:
    now_us = paused_in_the_dump(scene, until_minutes_ago=30)
    advance(scene.ledger, Memory(planned={"s": now_us}), why="a replica lacked it")
    end_pauses(scene.ledger)
    assert [why for why, _ in skipped(scene)] == ["restored: unknown"]
    found = schedule(scene.ledger, "s")
    assert (found.planned_through, found.paused_at) == (now_us, None)
