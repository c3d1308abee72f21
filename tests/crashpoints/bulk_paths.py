"""What is cut of bulk work: plans and their end, chunks and their splitting, partitions taken over and taken back."""

from __future__ import annotations

from typing import Any

from tests.crashpoints.bulk import CHUNKED, DIVIDED, FAR, NEAR, PART
from tests.crashpoints.path import Do, claimed, path
from tests.crashpoints.world import World

FAMILY = "bulk"
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
        params = {"batch": "b", "most": HALF, "stumbles": True}
        [parent] = world.ask(job, **params)
        claimed(victim)
        victim.runner.work()
        given = {"parent": parent, "step": "main", "number": 0, "instance": f"run-{parent}", "values": params}
        world.ask(job + PART, **given, key=f"taken over from run {parent}")
        claimed(victim)
        victim.join()

    return prepare


def _works(world: World) -> None:
    world.victim.runner.work()


def _works_on_part(world: World) -> None:
    world.victim.runner.work(lambda claim: claim.job.endswith(PART))


for _where, _word in ((NEAR, ""), (FAR, ", far")):
    path(FAMILY, f"bulk{_word}", _asked(CHUNKED + _where, batch="b", most=ALL))(_works)
    path(FAMILY, f"bulk parts{_word}", _asked(DIVIDED + _where, batch="b", most=2))(_works)
    path(FAMILY, f"bulk part{_word}", _taken_over(DIVIDED + _where))(_works_on_part)
