"""What a runner reports of an attempt, before the job's policy decides what becomes of the run."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from fencepost.core.runs import StopReason


class How(StrEnum):
    """How an attempt came to its end."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the job raised
    GIVEN_UP = "given up"  # the job raised Fail, or what no retry would mend
    RETRY = "retry"  # the job raised Retry
    SKIPPED = "skipped"  # the job raised Skip
    CANCELLED = "cancelled"  # the job raised Cancel, or was stopped because somebody asked for it
    TIMED_OUT = "timed out"
    CRASHED = "crashed"  # the worker process died under it
    INTERRUPTED = "interrupted"  # its node was shut down in good order before it had ended
    LOST = "lost"  # it was stopped because the right to run was lost: the ledger is not told, the reaper has it
    RETURNED = "returned"  # never started; the claim is handed back


HOW_STOPPED = {
    StopReason.LOST: How.LOST,
    StopReason.CANCELLED: How.CANCELLED,
    StopReason.TIMED_OUT: How.TIMED_OUT,
    StopReason.SHUTDOWN: How.INTERRUPTED,  # it did begin, and nobody knows how far it came
}
"""How an attempt ends that was stopped, by the reason."""


class Outcome(NamedTuple):
    """One attempt's end. Texts are bounded by whoever makes them; `result` is JSON."""

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
        """Return what is to be told of an attempt that lost its right to run although its node lives."""
        error = self.reason or "it lost its right to run"
        return self._replace(how=str(How.CRASHED), error_code="lost", error=error)
