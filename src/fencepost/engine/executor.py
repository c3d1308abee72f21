"""Executes the jobs of one application inside a worker process: functions on the main thread, coroutines on a loop.

The loop is kept between runs, so that a client or pool that a coroutine created on it still works in the next run.
Tasks that a run left *running* on it are cancelled when the run ends.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fencepost.core.runs import Claim
from fencepost.engine.context import RunContext
from fencepost.engine.invoke import invoke, invoke_async
from fencepost.engine.jobs import ASYNC, Job
from fencepost.engine.loading import load_app
from fencepost.engine.runners import verdicts
from fencepost.engine.runners.outcome import Outcome
from fencepost.engine.trust import SharedPageTrust
from fencepost.engine.wire import Greeting

if TYPE_CHECKING:
    import asyncio


class JobExecutor:
    """Executes claims of the given jobs."""

    def __init__(self, jobs: Mapping[str, Job], context: RunContext) -> None:
        """Execute these jobs in this context."""
        self._jobs = jobs
        self._context = context
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Outcome] | None = None

    def execute(self, claim: Claim) -> Outcome:
        """Execute a claim and return its outcome."""
        if claim.job not in self._jobs:
            return verdicts.of_unknown_job(claim)  # the code on disk has changed since the node was started
        job = self._jobs[claim.job]
        return self._awaited(job, claim) if job.kind == ASYNC else invoke(job, claim, self._context)

    def cancel(self) -> bool:
        """Cancel the current coroutine. Return False if there is none."""
        if self._loop is None or self._task is None:
            return False
        self._loop.call_soon_threadsafe(self._task.cancel)  # threadsafe because that also wakes the loop
        return True

    def _awaited(self, job: Job, claim: Claim) -> Outcome:
        import asyncio  # noqa: PLC0415 - takes 30 ms, which workers without coroutines need not spend

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(invoke_async(job, claim, self._context))
        try:
            return self._loop.run_until_complete(self._task)
        finally:
            self._task = None
            self._cancel_leftovers(self._loop)

    def _cancel_leftovers(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio  # noqa: PLC0415 - as above

        if leftovers := asyncio.all_tasks(loop):
            for task in leftovers:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*leftovers, return_exceptions=True))


def load_executor(greeting: Greeting, trust: SharedPageTrust) -> JobExecutor:
    """Import an application and return the executor of its jobs."""
    loaded = _prepared(greeting.prepare)
    application = load_app(greeting.app, modules=greeting.modules)
    if loaded is not None:
        loaded()
    context = application.worker_context()
    trust.fenced = frozenset(name for name, job in application.jobs.items() if not job.policy.stops_in_doubt)
    return JobExecutor(application.jobs, replace(context, standing=trust, node=greeting.node or context.node))


def _prepared(prepare: str | None) -> Callable[[], None] | None:
    """Call the `prepare` function. Return the function to call when the application has been loaded, if any."""
    if prepare is None:
        return None
    module, _, function = prepare.partition(":")
    found: Callable[[], Callable[[], None] | None] = getattr(importlib.import_module(module), function)
    return found()
