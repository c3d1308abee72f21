"""The outcome of an attempt, as a runner reports it. The job's policy then decides the next state of the run."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from fencepost.core.runs import StopReason


class How(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the job raised
    GIVEN_UP = "given up"  # the job raised Fail, or an error that a retry cannot fix
    RETRY = "retry"  # the job raised Retry
    SKIPPED = "skipped"  # the job raised Skip
    CANCELLED = "cancelled"  # the job raised Cancel, or a user cancelled the run
    TIMED_OUT = "timed out"
    CRASHED = "crashed"  # the worker process died during the attempt
    INTERRUPTED = "interrupted"  # the node shut down in an orderly way before the attempt ended
    LOST = "lost"  # stopped because the lease was lost: not written to the ledger, the reaper ends the attempt
    RETURNED = "returned"  # never started; the claim is returned


HOW_STOPPED = {
    StopReason.LOST: How.LOST,
    StopReason.CANCELLED: How.CANCELLED,
    StopReason.TIMED_OUT: How.TIMED_OUT,
    StopReason.SHUTDOWN: How.INTERRUPTED,  # not returned: it did start, and its progress is unknown
}
"""How a stopped attempt ends, by the reason for stopping it."""


class Outcome(NamedTuple):
    """The end of one attempt. The code that makes an outcome limits its texts; `result` is JSON."""

    run_id: int
    attempt: int
    token: int
    how: str
    took_us: int = 0
    result: str | None = None
    error_code: str | None = None
    error: str | None = None
    trace: str | None = None
    reason: str | None = None
    retry_after_us: int | None = None

    def lost_alone(self) -> Outcome:
        """Return the outcome to record for an attempt that lost its lease while its node is alive."""
        error = self.reason or "the attempt lost its lease"
        return self._replace(how=str(How.CRASHED), error_code="lost", error=error)
