"""Claims and surroundings for runs that no node executes."""

from __future__ import annotations

from typing import Any, NoReturn

from fencepost.core.policy import Policy
from fencepost.core.runs import Claim, StopReason
from fencepost.engine.context import UNSTOPPED, RunContext, RunStanding
from fencepost.engine.jobs import Job
from fencepost.engine.run import Run
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()
CLAIM = Claim(
    run_id=12,
    job="settle",
    attempt=2,
    token=1_000,
    params="{}",
    schedule=None,
    due_at_us=None,
    window_start_us=None,
    window_end_us=None,
    exclusive_key=None,
    failures=1,
    crashes=0,
    requested_by=None,
    available_at_us=1_767_225_600_000_000,
    claimed_at_us=1_767_225_600_000_001,
    ticks=1,
)


class Told:
    """A standing that a test sets."""

    def __init__(self, why: StopReason | None = None) -> None:
        self.why = why

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        return self.why

    def suspended(self, run_id: int, token: int) -> bool:
        return False


def no_ledger() -> NoReturn:
    raise AssertionError("nothing here may ask the ledger")


def context(standing: RunStanding = UNSTOPPED, ledger: Any = no_ledger) -> RunContext:
    return RunContext(node="here:1:abcd", runtime=RUNTIME, ledger=ledger, standing=standing, ttl_s=5.0)


def job_of(function: Any, **policy: Any) -> Job:
    return Job.of(function, policy=Policy.of("manual", **policy), name="settle")


def run_of(function: Any = lambda run: None, standing: RunStanding = UNSTOPPED, **claim: Any) -> Run:
    return Run(job_of(function), CLAIM._replace(**claim), context(standing))
