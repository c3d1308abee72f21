"""What a runner reports of an attempt, before the job's policy decides what becomes of the run."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


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
    LOST = "lost"  # it was stopped because the right to run was lost: the ledger is not told, the reaper has it
    RETURNED = "returned"  # never started; the claim is handed back


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
