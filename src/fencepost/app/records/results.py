"""What acts and lists of accounts answer, as records: for REST and its client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fencepost.app.records.record import LedgerRecord


@dataclass(frozen=True, slots=True)
class LedgerStateRecord(LedgerRecord):
    """The ledger's clock, why nodes do nothing with it if they do not, and who asks."""

    now: datetime
    held_because: str | None
    principal: str


@dataclass(frozen=True, slots=True)
class SearchRecord(LedgerRecord):
    """A search that ended early, in its bounds: how many runs it looked through, up to which id, and its time."""

    looked_through: int
    looked_back_to: int
    looked_back_at: datetime | None


@dataclass(frozen=True, slots=True)
class TriggeredRecord(LedgerRecord):
    """A run that was requested. `is_new`: False if a request with the same key had made it before.

    `paused`: the pause of its queue, or of everything, for which it waits.
    """

    run_id: int
    job: str
    is_new: bool
    paused: str | None = None


@dataclass(frozen=True, slots=True)
class RetriedRecord(LedgerRecord):
    """A run that repeats another one."""

    run_id: int
    retry_of: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class RepeatedRecord(LedgerRecord):
    """Runs that were given up, and those that repeat them."""

    repeated: Sequence[RetriedRecord]


@dataclass(frozen=True, slots=True)
class CancelledRecord(LedgerRecord):
    """What a request to cancel did: ``cancelled``, ``requested`` of its node, or ``too late``."""

    run_id: int
    outcome: str


@dataclass(frozen=True, slots=True)
class WaitsRecord(LedgerRecord):
    """What a run waits for, in a sentence; None if it does not wait."""

    run_id: int
    waits: str | None


@dataclass(frozen=True, slots=True)
class BackfilledRecord(LedgerRecord):
    """A back-fill: how many due times it asked for, and how many new runs it made."""

    job: str
    key: str
    asked: int
    new: int


@dataclass(frozen=True, slots=True)
class DoneRecord(LedgerRecord):
    """An act that was done. `count`: to how many, where that is asked."""

    done: bool
    count: int | None = None


@dataclass(frozen=True, slots=True)
class ForgottenRecord(LedgerRecord):
    """A job that was forgotten: how many schedules were deleted, and how many runs cancelled."""

    name: str
    schedules: int
    runs: int


@dataclass(frozen=True, slots=True)
class ChainLineRecord(LedgerRecord):
    """An entry of the audit as it is exported: its exact text, and the hashes that chain it."""

    n: int
    prev: str
    hash: str
    entry: str


@dataclass(frozen=True, slots=True)
class AccountRecord(LedgerRecord):
    """A local account."""

    name: str
    has_password: bool
    created_at: datetime
    created_by: str
    changed_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class PermissionRecord(LedgerRecord):
    """A role of a principal on a job; `job` is None for all jobs."""

    principal: str
    job: str | None
    role: str
    given_at: datetime
    given_by: str


@dataclass(frozen=True, slots=True)
class RoleRecord(LedgerRecord):
    """Whether those who act in a role have to give a reason for every act: ``always``, or ``optional``."""

    role: str
    reasons: str
    set_at: datetime | None
    set_by: str | None


@dataclass(frozen=True, slots=True)
class ApiTokenRecord(LedgerRecord):
    """An API token, without its secret."""

    id: str
    name: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewApiTokenRecord(LedgerRecord):
    """An API token that was made. `secret` is shown this once: a repeated request has None there."""

    id: str
    name: str
    expires_at: datetime
    secret: str | None


@dataclass(frozen=True, slots=True)
class LoginRecord(LedgerRecord):
    """A login of a person."""

    principal: str
    how: str
    address: str | None
    created_at: datetime
    seen_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ProblemRecord(LedgerRecord):
    """What went wrong, as in RFC 9457. `errors` names the fields of the request that do not fit."""

    type: str
    title: str
    status: int
    detail: str
    errors: Sequence[Mapping[str, str]] | None = field(default=None, hash=False)
