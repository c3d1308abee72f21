"""Which runner executes which jobs of a node, and whether the ledger may have runs for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.engine.jobs import Jobs
from fencepost.engine.runners.runner import Runner

HOLD_OFF_S = 0.02  # a claim that comes this much later takes more runs at once
# Runners notify the exchange of outcomes, but not of room that new workers or new trust make. So it polls for room.
ASK_FOR_ROOM_S = 0.1


@dataclass(slots=True)
class RunnerJobs:
    """A runner and the jobs that it executes on this node, and whether the ledger may have runs for it."""

    runner: Runner
    jobs: tuple[str, ...]
    expects_work: bool = True
    has_held_off: bool = False

    def claims_at(self, now: float, *, is_held: bool, is_member: bool) -> float:
        """Return when to claim for a runner that expects work: now, if it has room and its node may claim."""
        if self.has_held_off:
            return now + HOLD_OFF_S
        if is_held:
            return now + ASK_FOR_ROOM_S
        return now if is_member and self.runner.room() > 0 else now + ASK_FOR_ROOM_S


def runner_jobs(jobs: Jobs, runners: Mapping[str, Runner]) -> list[RunnerJobs]:
    """Give each runner the jobs of its kinds."""
    names: dict[int, list[str]] = {}
    by_id = {id(runner): runner for runner in runners.values()}
    for name, job in jobs.items():
        names.setdefault(id(runners[job.kind]), []).append(name)
    return [RunnerJobs(by_id[key], tuple(found)) for key, found in names.items()]
