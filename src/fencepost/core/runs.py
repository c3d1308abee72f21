"""What passes between the ledger, the engine and the runners: a run to be made, one that was claimed, one that ended.

They are named tuples because they cross every boundary in batches of hundreds, and are made from and unpacked into
rows of a driver without a step in between.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Requested(NamedTuple):
    """A run that somebody or something wants to happen. The ledger adds the id and the times."""

    job: str
    type: str
    params: str = "{}"
    params_hash: str = ""
    origin_key: str | None = None
    schedule: str | None = None
    first_due_at_us: int | None = None
    due_at_us: int | None = None
    ticks: int = 1
    window_start_us: int | None = None
    window_end_us: int | None = None
    available_at_us: int | None = None  # None: now
    priority: int = 0
    queue: str = "default"
    exclusive_key: str | None = None
    sla_us: int | None = None  # counted from `due_at_us`, or from when it may start
    requested_by: str | None = None
    reason: str | None = None
    retry_of: int | None = None
    generation: int = 0
    state: str = "queued"  # or "misfired", "skipped": what did not run is on record too
    why: str | None = None
    root: str | None = None  # of a repetition: the first of its chain; see `fencepost.ledger.roots`


class Claim(NamedTuple):
    """A run that a node may execute, under `token`, until it ends it or the ledger gives it to somebody else."""

    run_id: int
    job: str
    attempt: int  # the number of this attempt, from 1
    token: int
    params: str
    schedule: str | None
    due_at_us: int | None
    window_start_us: int | None
    window_end_us: int | None
    exclusive_key: str | None
    failures: int  # attempts that failed before this one; those that were lost are counted in `crashes`
    crashes: int
    requested_by: str | None
    available_at_us: int
    claimed_at_us: int
    ticks: int


class Ending(NamedTuple):
    """How an attempt ended, and what becomes of its run. Compared with (run, attempt, token) before it is believed.

    `outcome` None hands the claim back: it was never started, and leaves no attempt.
    """

    run_id: int
    attempt: int
    token: int
    state: str  # the run's next state
    outcome: str | None  # the attempt's outcome
    delay_us: int = 0  # until the next attempt, if there is one
    took_us: int = 0  # how long it executed, by the node's monotonic clock
    error_code: str | None = None
    error: str | None = None
    trace: str | None = None
    result: str | None = None
    why: str | None = None
    exclusive_key: str | None = None


class StopReason(StrEnum):
    """Why a run that executes is told to stop."""

    LOST = "lost"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    SHUTDOWN = "shutdown"
