"""A job from its beginning to its end, with kills at random in between, and all that is known of it afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.core.states import RunState, is_terminal
from fencepost.proof.chaos.chance import Chance
from fencepost.proof.chaos.processes import tree_of
from fencepost.testing import until
from tests.bulk_chaos import application
from tests.bulk_chaos.cluster import Cluster, Kill, started
from tests.bulk_chaos.places import Place, fill
from tests.bulk_chaos.records import Records
from tests.cluster.nodes import command

_LOOK_EVERY_S = 0.1
_ASK_EVERY_S = 0.5
_KILLS_WITHIN = 0.92  # of the work: the last kill is to find plenty left
_SLOWEST_ROW_S = 0.02
_DEATH_S = 6.0  # about how long it takes until a dead node's work goes on
_WITHIN_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is to happen."""

    rows: int = 1_000_000
    kills: int = 100
    chunk: int = 500
    nodes: int = 3
    workers: int = 2
    on_threads: bool = False
    ttl_s: float = 3.0
    gap_s: float = 1.5  # from one kill to the next, on average
    supervisors: float = 0.3  # the share of kills that hit one
    seed: int = 1
    end_within_s: float = 240.0  # after the last kill
    begins_with_a_death: bool = False  # a supervisor is killed with nothing else, and stays dead until all goes on
    planted: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """What the nodes are started with."""
        threads = ("--threads",) if self.on_threads else ()
        return ("--ttl", f"{self.ttl_s:g}s", "--workers", str(self.workers), *threads)


@dataclass
class Story:
    """What happened."""

    wishes: Wishes
    place: Place
    run_id: int
    kills: list[Kill] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)  # that have ended, of all runs
    took_s: float = 0.0

    @property
    def has_ended(self) -> bool:
        return bool(self.run) and is_terminal(RunState(self.run["state"]))


class Course:
    """One job on one cluster."""

    def __init__(self, place: Place, wishes: Wishes, folder: Path, say: Callable[[str], None]) -> None:
        self._place = place
        self._wishes = wishes
        self._folder = folder
        self._say = say
        self._chance = Chance(wishes.seed)
        self.records = Records(folder)

    def run(self) -> Story:
        """Fill, start, ask for the job, kill, and wait for its end."""
        wishes = self._wishes
        fill(self._place, wishes.rows)
        with started(
            self._place,
            folder=self._folder,
            chunk=wishes.chunk,
            options=wishes.options,
            nodes=wishes.nodes,
            more={application.PLANTED: wishes.planted},
        ) as cluster:
            begun_s = time.monotonic()
            self._begin()
            story = Story(wishes, self._place, self._ask("trigger", application.JOB)["run"])
            if wishes.begins_with_a_death:
                story.kills.append(self._death(cluster))
            self._kill_at_random(cluster, story)
            self.records.pace(0.0)
            self._see_it_end(cluster, story)
            story.took_s = time.monotonic() - begun_s
        story.runs = self._ask("runs", "--limit", "10000")
        for run in story.runs:
            story.attempts += self._ask("show", str(run["id"]))["ended_attempts"]
        return story

    def _begin(self) -> None:
        wishes = self._wishes
        busy = min(wishes.nodes * wishes.workers, application.PARTITIONS)
        takes_s = wishes.kills * wishes.gap_s + (2 * _DEATH_S if wishes.begins_with_a_death else 0.0)
        self.records.pace(_slow_enough(takes_s, wishes.rows, busy))

    def _death(self, cluster: Cluster) -> Kill:
        """Kill the supervisor that has most partitions in its hands, and wait until each of them goes on."""
        until(lambda: len(self.records.busy()) == application.PARTITIONS, _WITHIN_S, "all partitions are under way")
        busy = self.records.busy()
        victim = max(cluster.alive(), key=lambda node: sum(pid in tree_of(node.pid) for pid in busy))
        kill = cluster.kill_supervisor(victim, back_after_s=_DEATH_S)
        stood_still = sum(pid in kill.pids for pid in busy)
        until(lambda: len(self.records.begun_after(kill.at_s)) >= stood_still, _WITHIN_S, "every partition goes on")
        return kill

    def _kill_at_random(self, cluster: Cluster, story: Story) -> None:
        wishes, next_at_s = self._wishes, time.monotonic() + self._gap_s()
        asked_at_s = time.monotonic()
        while len(story.kills) < wishes.kills:
            time.sleep(_LOOK_EVERY_S)
            cluster.bring_back()
            now_s = time.monotonic()
            if now_s - asked_at_s > _ASK_EVERY_S:
                asked_at_s = now_s
                story.run = self._ask("show", str(story.run_id))
                if story.has_ended:
                    return
                calls = self._keep_pace(wishes.kills - len(story.kills))
            if now_s < next_at_s or not self.records.look()[0]:
                continue
            next_at_s = now_s + self._gap_s()
            killed = self._kill(cluster)
            if killed is not None:
                story.kills.append(killed)
                if len(story.kills) % 10 == 0:
                    self._say(f"{len(story.kills)} kills, {calls:,} calls of process()")

    def _kill(self, cluster: Cluster) -> Kill | None:
        chance = self._chance
        if chance.random() < self._wishes.supervisors and cluster.alive():
            return cluster.kill_supervisor(chance.one_of(cluster.alive()), back_after_s=chance.between(0.2, 2.0))
        workers = cluster.workers()
        return cluster.kill_worker(chance.one_of(workers)) if workers else None

    def _gap_s(self) -> float:
        return self._chance.between(0.2, 2 * self._wishes.gap_s - 0.2)

    def _keep_pace(self, kills_left: int) -> int:
        """Have what is left of the work last for the kills that are left."""
        calls, busy = self.records.look()
        rows_left = self._wishes.rows * _KILLS_WITHIN - calls
        self.records.pace(_slow_enough(kills_left * self._wishes.gap_s, rows_left, max(busy, 1)))
        return calls

    def _see_it_end(self, cluster: Cluster, story: Story) -> None:
        give_up_at_s = time.monotonic() + self._wishes.end_within_s
        while not story.has_ended and time.monotonic() < give_up_at_s:
            time.sleep(_ASK_EVERY_S)
            cluster.bring_back()
            story.run = self._ask("show", str(story.run_id))
        if story.has_ended:
            cluster.refuse_ended()

    def _ask(self, *words: str) -> Any:
        return command(self._place.ledger, *words)


def _slow_enough(takes_s: float, rows: float, workers: int) -> float:
    """Return how long each row has to take for all of them to take so long."""
    return min(takes_s * workers / rows, _SLOWEST_ROW_S) if rows >= 1 else _SLOWEST_ROW_S
