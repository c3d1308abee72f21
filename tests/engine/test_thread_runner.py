"""The thread runner: the contract of runners, and what is particular to threads that cannot be killed."""

from dataclasses import replace

from fencepost.engine.invoke import invoke
from fencepost.engine.runners.thread import ThreadRunner
from fencepost.testing.runner_contract import RUNTIME, RunnerContract
from fencepost.testing.runner_jobs import functions


class TestThreads(RunnerContract):
    def make(self, *, slots, timeouts, emit):
        runner = ThreadRunner(
            lambda claim: invoke(functions.jobs[claim.job], claim, context),
            slots=slots,
            timeouts=timeouts,
            runtime=RUNTIME,
            emit=emit,
        )
        context = replace(functions.worker_context(), standing=runner)
        return runner
