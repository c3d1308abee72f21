"""The asyncio runner: the contract of runners, and what is particular to tasks on a loop of their own."""

from dataclasses import replace

from fencepost.engine.invoke import invoke_async
from fencepost.engine.runners.asyncio import AsyncioRunner
from fencepost.testing.runner_contract import RUNTIME, RunnerContract
from fencepost.testing.runner_jobs import coroutines


class TestAsyncio(RunnerContract):
    def make(self, *, slots, timeouts, emit):
        runner = AsyncioRunner(
            lambda claim: invoke_async(coroutines.jobs[claim.job], claim, context),
            slots=slots,
            timeouts=timeouts,
            runtime=RUNTIME,
            emit=emit,
        )
        context = replace(coroutines.worker_context(), standing=runner)
        return runner
