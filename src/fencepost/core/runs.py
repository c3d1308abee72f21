"""The values passed between ledger, engine and runners: a requested run, a claimed run, and the end of an attempt.

They are named tuples because they are passed in batches of hundreds, and are created from rows of a driver and
unpacked into them without another conversion.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Requested(NamedTuple):
    """A run to be recorded. The ledger adds the id and the times."""

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
    sla_us: int | None = None  # counted from `due_at_us`, or else from when it may start
    requested_by: str | None = None
    reason: str | None = None
    retry_of: int | None = None
    generation: int = 0
    state: str = "queued"  # or "misfired", "skipped": due times that did not run are recorded too
    why: str | None = None
    root: str | None = None  # if this run repeats another: the first of the chain; see `fencepost.ledger.roots`
    search: tuple[tuple[str, str], ...] = ()  # its search keys: no column, but rows of their own


class Claim(NamedTuple):
    """A run that a node may execute under `token`, until it ends or the ledger gives it to another node."""

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
    failures: int  # failed attempts before this one; lost attempts are counted in `crashes`
    crashes: int
    requested_by: str | None
    available_at_us: int
    claimed_at_us: int
    ticks: int


class Ending(NamedTuple):
    """How an attempt ended, and what happens to its run. Accepted only if (run, attempt, token) match the ledger.

    If `outcome` is None, the claim is returned: it was never started, and leaves no attempt.
    """

    run_id: int
    attempt: int
    token: int
    state: str  # the run's next state
    outcome: str | None  # the attempt's outcome
    delay_us: int = 0  # until the next attempt, if any
    took_us: int = 0  # execution time, by the node's monotonic clock
    error_code: str | None = None
    error: str | None = None
    trace: str | None = None
    result: str | None = None
    why: str | None = None
    exclusive_key: str | None = None
    job: str = ""  # for those who count endings: the ledger knows it


class StopReason(StrEnum):
    """Why an executing run must stop."""

    LOST = "lost"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    SHUTDOWN = "shutdown"
