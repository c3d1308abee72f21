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
        claimed(victim)
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


def _named(where: str, before: tuple[str, ...]) -> tuple[str, ...]:
    """Name what is cut in one place, each beside all that come before it."""
    job, parts, part = (f"bulk{word}{where}" for word in ("", " parts", " part"))
    far = FAR if where else NEAR
    path(BULK, job, _asked(CHUNKED + far, batch="b", most=ALL), beside=before)(_works)
    path(BULK, parts, _asked(DIVIDED + far, batch="b", most=2), beside=(*before, job))(_works)
    path(BULK, part, _taken_over(DIVIDED + far), beside=(*before, job, parts))(_works_on_part)
    return job, parts, part


_named(", far", _named("", ()))
