"""The events of leases, nodes and runs. Logs, metrics and the journal use the same names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    """The kind of an event."""

    ACQUIRED = "acquired"
    REFUSED = "refused"
    ALREADY_DONE = "already done"
    SKIPPED = "skipped"
    RENEWED = "renewed"
    RENEWAL_UNANSWERED = "renewal unanswered"  # emitted once, until a renewal gets a reply again
    RENEWAL_ANSWERED = "renewal answered"
    LOST = "lost"
    RELEASED = "released"
    RELEASE_UNANSWERED = "release unanswered"
    REVOKED = "revoked"
    TOKEN_RESET = "token reset"  # noqa: S105 - an operator reset a token that a wrong clock had put ahead
    REFUSED_WRITE = "refused write"  # a fence refused a write under a lock
    ELECTED = "elected"
    RESIGNED = "resigned"
    LEADER_CHANGED = "leader changed"
    STORE_WARNING = "store warning"
    OBSERVER_FAILED = "observer failed"
    NODE_JOINED = "node joined"
    NODE_LEFT = "node left"
    NODE_DRAINS = "node drains"  # a person has asked this node to take no more runs, and to leave
    NODE_LOST = "node lost"  # this process lost its own session
    NODE_DIED = "node died"  # this process declared another node dead
    NODE_FAILED = "node failed"  # an essential part of this node has ended, so the node leaves
    RUN_STARTED = "run started"  # this node has claimed it, and passes it to a worker
    RUN_SUCCEEDED = "run succeeded"
    RUN_RETURNED = "run returned"  # it was claimed but not started, and other nodes may claim it
    RUN_SKIPPED = "run skipped"
    RUN_FAILED = "run failed"  # an attempt failed; the run may be retried
    RUN_DEAD = "run dead"
    RUN_LOST = "run lost"  # its node or its worker was lost
    RUN_INTERRUPTED = "run interrupted"  # its node was shut down before it ended; counts against no limit
    JOB_OUTLASTS_GRACE = "job outlasts grace"  # shutdowns interrupted its run at least five times in a row
    RUN_CANCELLED = "run cancelled"
    RUN_REFUSED = "run refused"  # it ended, but no longer belonged to this node
    RUN_SUSPENDED = "run suspended"  # the ledger does not reply; its effects are fenced, so it is not stopped
    RUN_RESUMED = "run resumed"  # it was suspended, and still belongs to this node
    SLA_MISSED = "sla missed"  # a run has not ended by the time that its job's SLA demands
    RUN_ABANDONED = "run abandoned"  # it was stopped and reported, but its thread or process has not ended
    RUNNER_WARNING = "runner warning"
    JOB_WITHOUT_NODE = "job without a node"  # no living node has had it for ten minutes; its schedules are not planned
    LEDGER_TROUBLE = "ledger trouble"
    LEDGER_BACK = "ledger back"
    LEDGER_UNSHARED = "ledger unshared"  # a SQLite file inside a container, which other containers cannot see
    LEDGER_HELD = "ledger held"  # it was restored or copied; nothing is planned or claimed until an operator decides
    LEDGER_ADVANCED = "ledger advanced"  # its last moments were lost, so it was advanced past what this node knows
    CLOCK_LEAPT = "clock leapt"
    PROCESS_PAUSED = "process paused"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: what happened to which lock, node or run, under which token, and why."""

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
    trace: str | None = None  # the traceback of a failure, without passwords, and limited in length


Observer = Callable[[Event], None]
