"""The contract of runners on worker processes; what is particular to them is in `test_process_runner`."""

import pytest

from fencepost.core.timings import Timings
from fencepost.engine.runners.process import ProcessRunner
from fencepost.testing.runner_contract import RunnerContract
from fencepost.testing.runner_driver import RUNTIME

TIMINGS = Timings.of("30s", term_grace="300ms")


class TestProcesses(RunnerContract):
    def make(self, *, slots, timeouts, emit):
        return ProcessRunner(
            "fencepost.testing.runner_jobs:functions",
            slots=slots,
            timeouts=timeouts,
            timings=TIMINGS,
            runtime=RUNTIME,
            emit=emit,
        )

    @pytest.mark.parametrize("seed", range(2))  # each starts four workers, and starts them again when they are stopped
    def test_each_claim_has_one_outcome_whatever_happens(self, open_driver, seed):
        super().test_each_claim_has_one_outcome_whatever_happens(open_driver, seed)
