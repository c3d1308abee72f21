"""Runners of the suspended shop, in every place where jobs are executed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.core.runs import Claim
from fencepost.core.timings import Timings
from fencepost.engine.invoke import invoke, invoke_async
from fencepost.engine.runners.asyncio import AsyncioRunner
from fencepost.engine.runners.process import ProcessRunner
from fencepost.engine.runners.runner import Runner
from fencepost.engine.runners.thread import ThreadRunner
from fencepost.ledger.ledger import Ledger
from fencepost.testing import until
from tests.engine.crew import RUNTIME
from tests.engine.suspended_shop import LEDGER, app

everywhere = pytest.mark.parametrize("place", ["thread", "asyncio", "process"])
TTL = "4s"
FENCED = frozenset(name for name, job in app.jobs.items() if not job.policy.stops_in_doubt)
TIMEOUTS = {name: job.policy.timeout_s for name, job in app.jobs.items()}
LONG_S = 40.0


def make_runner(place: str, ledger: Ledger | None, url: str = "", slots: int = 2) -> Runner:
    context = replace(app.worker_context(), ledger=lambda: ledger)
    if place == "process":
        return ProcessRunner(
            "tests.engine.suspended_shop:app",
            slots=slots,
            timings=Timings.of(TTL),
            runtime=RUNTIME,
            timeouts=TIMEOUTS,
            fenced=FENCED,
            env={**os.environ, LEDGER: url},
        )
    if place == "thread":
        threads = ThreadRunner(
            lambda claim: invoke(app.jobs[claim.job], claim, context),
            timeouts=TIMEOUTS,
            runtime=RUNTIME,
            fenced=FENCED,
        )
        context = replace(context, standing=threads)
        return threads

    async def call(claim: Claim):
        return await invoke_async(app.jobs[claim.job], claim, context)

    tasks = AsyncioRunner(call, timeouts=TIMEOUTS, runtime=RUNTIME, fenced=FENCED)
    context = replace(context, standing=tasks)
    return tasks


def job_of(place: str) -> str:
    return "checks_async" if place == "asyncio" else "checks"


def settle_in(began: Path) -> None:
    """Wait until a run has been executing for long enough to have its worker to itself."""
    until(lambda: RUNTIME.wall_us() / 1e6 - began.stat().st_mtime > 0.4, LONG_S, "it has been executing for a moment")
