"""Runs that no living node can take are set aside after ten minutes, and come back to their place with a node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.misfire import Misfire
from fencepost.core.runs import Requested
from fencepost.ledger.jobs import NewJob, register
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.misfiring import MisfireCounts, settle_late
from fencepost.ledger.nodes import NewNode, join, leave
from fencepost.ledger.parking import park, unpark, unpark_for_older
from fencepost.ledger.serving import Served
from tests.ledger.scene import HOUR_US, Scene, tick

HERE = Served([({"job"}, {"default"})])


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    register(ledger, [NewJob(name, "manual", "{}", "{}") for name in ("job", "other")], generation=0)
    live(scene, "mine", "job")
    live(scene, "theirs", "other")
    yield scene
    scene.close()


def live(scene: Scene, node: str, job: str, version: str = "0.1.0/0004") -> None:
    join(scene.ledger, NewNode(node, node, "g", 1, 0, version, 1, ("default",), (job,)))


def gone(scene: Scene, node: str, ago_us: int = HOUR_US) -> None:
    leave(scene.ledger, node)
    scene.change("UPDATE {node} SET left_at = left_at - %s WHERE id = %s", ago_us, node)


def old(job: str, count: int, ago_us: int) -> list[Requested]:
    return [Requested(job, "manual", available_at_us=ago_us + number) for number in range(count)]


def test_runs_of_a_job_that_nobody_has_are_set_aside_and_come_back_to_their_place(scene: Scene) -> None:
    long_ago_us = scene.now_us() - HOUR_US
    mine, theirs = scene.add(*old("job", 3, long_ago_us)), scene.add(*old("other", 2, long_ago_us))
    gone(scene, "mine")
    count, [missed] = park(scene.connection)
    assert count == 3
    assert (missed.job, "its runs wait for one" in missed.reason) == ("job", True)
    assert scene.states(mine) == ["waiting"] * 3
    assert scene.states(theirs) == ["queued"] * 2
    assert park(scene.connection) == (0, [])
    assert unpark(scene.connection, Served([({"job"}, {"heavy"})])) == 0
    assert unpark(scene.connection, HERE) == 3
    assert [claim.run_id for claim in scene.claim().claims] == mine


def test_runs_in_a_queue_that_nobody_takes_from_any_more_are_set_aside_though_their_job_has_another(
    scene: Scene,
) -> None:
    scene.change("UPDATE {job} SET seen_at = seen_at - %s", HOUR_US)
    long_ago_us = scene.now_us() - HOUR_US
    stranded = scene.add(Requested("job", "manual", available_at_us=long_ago_us, queue="slow"))
    fine = scene.add(*old("job", 2, long_ago_us))
    count, [missed] = park(scene.connection)
    assert count == 1
    assert "from queue 'slow'" in missed.reason
    assert scene.states(stranded + fine) == ["waiting", "queued", "queued"]
    assert unpark(scene.connection, Served([({"job"}, {"slow"})])) == 1


@pytest.mark.parametrize("why", ["a node has it", "its node left a minute ago", "it is young"])
def test_nothing_else_is_set_aside(scene: Scene, why: str) -> None:
    runs = scene.add(*old("job", 3, scene.now_us() - (0 if why == "it is young" else HOUR_US)))
    if why != "a node has it":
        gone(scene, "mine", 60_000_000 if "minute" in why else HOUR_US)
    assert park(scene.connection) == (0, [])
    assert scene.states(runs) == ["queued"] * 3


@pytest.mark.parametrize("ended_ago_us", [None, 2 * HOUR_US], ids=["lives", "ended today"])
def test_nor_is_anything_while_an_older_node_that_would_not_queue_it_again_may_come_back(
    scene: Scene, ended_ago_us: int | None
) -> None:
    runs = scene.add(*old("job", 3, scene.now_us() - HOUR_US))
    gone(scene, "mine")
    live(scene, "older", "other", version="0.1.0/0003")
    if ended_ago_us is not None:
        gone(scene, "older", ended_ago_us)
    count, [missed] = park(scene.connection)
    assert (count, missed.job) == (0, "job")
    assert park(scene.connection) == (0, [])
    assert scene.states(runs) == ["queued"] * 3
    gone(scene, "older", 25 * HOUR_US)
    assert park(scene.connection) == (3, [])


def test_ticks_that_were_set_aside_are_late_when_their_node_returns(scene: Scene) -> None:
    gone(scene, "mine")
    day_ago_us = scene.now_us() - HOUR_US // 2
    ids = scene.add(*[tick("s", day_ago_us + number * 60_000_000, first_due_at_us=1) for number in range(5)])
    park(scene.connection)
    rules = {"job": Misfire.of("once", grace="10s")}
    assert settle_late(scene.connection, node="new", queues=("default",), rules=rules) == MisfireCounts(merged=4)
    assert unpark(scene.connection, HERE) == 1
    assert [claim.run_id for claim in scene.claim().claims] == [ids[-1]]


def test_where_no_older_node_was_the_last_node_leaves_aside_what_is_set_aside(scene: Scene) -> None:
    runs = scene.add(*old("job", 3, scene.now_us() - HOUR_US))
    gone(scene, "mine")
    park(scene.connection)
    leave(scene.ledger, "theirs")
    assert unpark_for_older(scene.connection, node="theirs") == 0
    assert scene.states(runs) == ["waiting"] * 3


def test_the_last_node_that_knows_of_it_queues_everything_when_it_leaves(scene: Scene) -> None:
    runs = scene.add(*old("job", 3, scene.now_us() - HOUR_US))
    gone(scene, "mine")
    park(scene.connection)
    live(scene, "older", "other", version="0.1.0/0003")
    live(scene, "newer", "other")
    assert unpark_for_older(scene.connection, node="theirs") == 0
    leave(scene.ledger, "newer")
    assert unpark_for_older(scene.connection, node="theirs") == 3
    assert scene.states(runs) == ["queued"] * 3
