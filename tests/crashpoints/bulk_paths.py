"""What is cut of bulk work: plans and their end, chunks and their splitting, partitions taken over and taken back."""

from __future__ import annotations

import json
from typing import Any

from tests.crashpoints.bulk import CHUNKED, DIVIDED, FAR, NEAR, PART
from tests.crashpoints.path import BULK, Do, claimed, path
from tests.crashpoints.world import World

ALL, HALF = 5, 3  # up to which key


def _asked(job: str, **params: Any) -> Do:
    def prepare(world: World) -> None:
        victim = world.node("victim")
        victim.beat()
        world.ask(job, **params)
        claimed(victim, 2)
        victim.join()

    return prepare


def _taken_over(job: str) -> Do:
    """A run that stumbled in the middle of a partition; then that is a part's, which is in the victim's hands."""

    def prepare(world: World) -> None:
        victim = world.node("victim")
        victim.beat()
        world.ask(job, batch="b", most=HALF, stumbles=True)
        claimed(victim)
        victim.runner.work()
        [(params,)] = world.rows("SELECT r.params FROM {run} r WHERE r.job = %s", job + PART)
        world.ask(job + PART, **{**json.loads(params), "number": 0, "key": "taken over"})
        claimed(victim)
        victim.join()

    return prepare


def _works(world: World) -> None:
    world.victim.runner.work()


def _works_on_part(world: World) -> None:
    world.victim.runner.work(lambda claim: claim.job.endswith(PART))


path(BULK, "bulk", _asked(CHUNKED + NEAR, batch="b", most=ALL))(_works)
path(BULK, "bulk parts", _asked(DIVIDED + NEAR, batch="b", most=2), beside=("bulk",))(_works)
path(BULK, "bulk part", _taken_over(DIVIDED + NEAR), beside=("bulk", "bulk parts"))(_works_on_part)
path(BULK, "bulk, far", _asked(CHUNKED + FAR, batch="b", most=ALL), beside=("bulk",))(_works)
path(BULK, "bulk parts, far", _asked(DIVIDED + FAR, batch="b", most=2), beside=("bulk, far", "bulk parts"))(_works)
path(BULK, "bulk part, far", _taken_over(DIVIDED + FAR), beside=("bulk, far", "bulk parts, far", "bulk part"))(
    _works_on_part
)
