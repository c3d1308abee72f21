"""One vocabulary for all that happens to leases, nodes and runs; logs, metrics and history are written from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    """What happened."""

    ACQUIRED = "acquired"
    REFUSED = "refused"
    ALREADY_DONE = "already done"
    SKIPPED = "skipped"
    RENEWED = "renewed"
    RENEWAL_UNANSWERED = "renewal unanswered"  # told once, until one is answered again
    RENEWAL_ANSWERED = "renewal answered"
    LOST = "lost"
    RELEASED = "released"
    RELEASE_UNANSWERED = "release unanswered"
    REVOKED = "revoked"
    TOKEN_RESET = "token reset"  # noqa: S105 - an operator brought back a token that a wrong clock had put ahead
    REFUSED_WRITE = "refused write"  # a fence turned away what was written in a lock's name
    ELECTED = "elected"
    RESIGNED = "resigned"
    LEADER_CHANGED = "leader changed"
    STORE_WARNING = "store warning"
    OBSERVER_FAILED = "observer failed"
    NODE_JOINED = "node joined"
    NODE_LEFT = "node left"
    NODE_LOST = "node lost"  # this process lost its own session
    NODE_DIED = "node died"  # this process declared another node dead
    NODE_FAILED = "node failed"  # a part of this node has ended that it cannot do without: it leaves
    RUN_STARTED = "run started"  # this node has claimed it, and gives it to a worker
    RUN_SUCCEEDED = "run succeeded"
    RUN_RETURNED = "run returned"  # it was claimed and never begun, and others may have it
    RUN_SKIPPED = "run skipped"
    RUN_FAILED = "run failed"  # an attempt; the run may be tried again
    RUN_DEAD = "run dead"
    RUN_LOST = "run lost"  # its node or its worker was lost
    RUN_INTERRUPTED = "run interrupted"  # its node was shut down before it had ended; counts against nothing
    JOB_OUTLASTS_GRACE = "job outlasts grace"  # its run was interrupted by shutdowns five times in a row, or more
    RUN_CANCELLED = "run cancelled"
    RUN_REFUSED = "run refused"  # it ended, and was no longer ours
    RUN_SUSPENDED = "run suspended"  # the ledger does not answer; its effects are fenced, so it is kept up
    RUN_RESUMED = "run resumed"  # it was suspended, and is still ours
    SLA_MISSED = "sla missed"  # a run has not ended, or did not end, by the time its job promises
    RUN_ABANDONED = "run abandoned"  # it was stopped and reported, but what executes it has not ended
    RUNNER_WARNING = "runner warning"
    JOB_WITHOUT_NODE = "job without a node"  # for ten minutes no living node has had it; its schedules are not planned
    LEDGER_TROUBLE = "ledger trouble"
    LEDGER_BACK = "ledger back"
    LEDGER_UNSHARED = "ledger unshared"  # a SQLite file inside a container: another one has a ledger of its own
    LEDGER_HELD = "ledger held"  # it was restored or copied; nothing is planned or claimed until a person decides
    LEDGER_ADVANCED = "ledger advanced"  # it lacked the last moments, and was brought past what this node knows
    CLOCK_LEAPT = "clock leapt"
    PROCESS_PAUSED = "process paused"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: to which lock, by or because of whom, under which token, and why."""

    what: What
    lock: str | None = None
    holder: str | None = None
    token: int | None = None
    grant_id: str | None = None
    tick_us: int | None = None
    reason: str | None = None
    previous_holder: str | None = None
    previous_token: int | None = None
    held_s: float | None = None
    node: str | None = None
    job: str | None = None
    run_id: int | None = None
    attempt: int | None = None
    took_s: float | None = None
    trace: str | None = None  # the traceback of a failure, without passwords, and of a bounded length


Observer = Callable[[Event], None]
