"""The table of runners: which file executes which kind of job inside a node's process.

To add a runner, add a file to this folder and a line to this table. The file defines `make_runner(given)`, which makes
the runner from the parts that an application gives to every runner.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import cast

from fencepost.core.events import Event
from fencepost.core.timings import Timings
from fencepost.engine.context import RunContext
from fencepost.engine.jobs import ASYNC, COMMAND, SYNC, Jobs
from fencepost.engine.logs.run_logs import RunLogs
from fencepost.engine.runners.runner import Runner


@dataclass(frozen=True, slots=True)
class Kind:
    """How jobs of one kind are executed. `module` is the file of the runner.

    `is_function`: a worker process can import and call the job. Nodes with worker processes execute such jobs there.
    """

    module: str
    is_function: bool = False


KINDS = {
    SYNC: Kind("thread", is_function=True),
    ASYNC: Kind("asyncio", is_function=True),
    COMMAND: Kind("command"),
}


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """What an application gives to every runner. `slots`: how many runs may execute at once.

    `logs` is where the logs of runs are collected, if they are kept.
    """

    jobs: Jobs
    context: RunContext
    slots: int
    timings: Timings
    emit: Callable[[Event], None]
    logs: RunLogs | None = None

    @property
    def timeouts(self) -> dict[str, float]:
        """How many seconds a run of each job may take."""
        return {name: job.policy.timeout_s for name, job in self.jobs.items()}

    @property
    def fenced(self) -> frozenset[str]:
        """The jobs whose runs are suspended, not stopped, while the ledger does not answer."""
        return frozenset(name for name, job in self.jobs.items() if not job.policy.stops_in_doubt)


def local_runners(given: RunnerParts, kinds: Collection[str] | None = None) -> dict[str, Runner]:
    """Return the runners that execute inside this process, by kind of job. Kinds without jobs are left out.

    `kinds` limits the result to these kinds.
    """
    needed = {job.kind for job in given.jobs.values()}
    return {
        name: _make(kind)(given) for name, kind in KINDS.items() if name in needed and (kinds is None or name in kinds)
    }


def function_kinds(jobs: Jobs) -> set[str]:
    """Return the kinds of these jobs that worker processes can execute."""
    return {job.kind for job in jobs.values() if KINDS[job.kind].is_function}


def _make(kind: Kind) -> Callable[[RunnerParts], Runner]:
    """Import the runner's file. It is imported only if there are jobs of its kind."""
    module = importlib.import_module(f"fencepost.engine.runners.{kind.module}")
    return cast("Callable[[RunnerParts], Runner]", module.make_runner)
