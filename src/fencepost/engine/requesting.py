"""From a request to a run that can be recorded: its parameters are checked, its key and time are determined.

A request for a job of this application is checked against its function; for a job of another deploy, against the
signature that the deploy has recorded in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.core.identity import canonical_json, request_hash, request_key
from fencepost.core.masked_values import MASKED
from fencepost.core.overlap import exclusive_key
from fencepost.core.parameters import Signature
from fencepost.core.policy import Policy
from fencepost.core.runs import Requested
from fencepost.core.search_keys import search_keys
from fencepost.core.tick import microseconds, outside_calendar
from fencepost.engine.jobs import Job
from fencepost.errors import InvalidParameters, InvalidTick
from fencepost.ledger.jobs import NewJob


@dataclass(frozen=True, slots=True)
class KnownJob:
    """The part of a job that a request needs. `parent` is the job that it is a part of."""

    name: str
    policy: Policy
    signature: Signature
    parent: str | None = None

    @staticmethod
    def of(job: Job) -> KnownJob:
        """Make it from a job of this application."""
        return KnownJob(job.name, job.policy, job.signature, job.parent)


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a run, without the job and its parameters.

    `at_us` is set by the caller and part of the request's identity; `available_at_us` is only when the run may start.
    """

    key: str | None = None
    at_us: int | None = None
    available_at_us: int | None = None
    window_us: tuple[int, int] | None = None
    priority: int | None = None
    requested_by: str | None = None
    reason: str | None = None
    retry_of: int | None = None
    generation: int = 0
    origin_key: str | None = None  # instead of a key
    schedule: str | None = None
    due_at_us: int | None = None
    runtime_schedule: str | None = None  # for the exclusive key: see `core.overlap`


def requested(job: KnownJob, params: Mapping[str, Any], request: Request) -> Requested:
    """Return the run to be recorded, or raise `InvalidParameters`."""
    stored = job.signature.validate(params, job=job.name)
    text = canonical_json(stored)
    if job.parent is None:  # parts are asked for by the engine: the run that they are a part of was checked
        refuse_secret_values(f"job {job.name!r}", params=text, key=request.key)
    policy, sla_s = job.policy, job.policy.sla_s
    known_as = policy.known_as(job.name)
    window_start_us, window_end_us = request.window_us or (None, None)
    return Requested(
        job=job.name,
        type=str(policy.type),
        params=text,
        params_hash=request_hash(known_as, stored, window_us=request.window_us, available_at_us=request.at_us),
        origin_key=request.origin_key or (None if request.key is None else request_key(request.key)),
        schedule=request.schedule,
        first_due_at_us=request.due_at_us,
        due_at_us=request.due_at_us,
        window_start_us=window_start_us,
        window_end_us=window_end_us,
        available_at_us=request.at_us if request.at_us is not None else request.available_at_us,
        priority=policy.priority if request.priority is None else checked_priority(request.priority),
        queue=policy.queue,
        exclusive_key=exclusive_key(job.name, policy, stored, runtime_schedule=request.runtime_schedule),
        sla_us=None if sla_s is None else round(sla_s * 1_000_000),
        requested_by=request.requested_by,
        reason=request.reason,
        retry_of=request.retry_of,
        generation=request.generation,
        search=search_keys(policy.search, stored),
    )


def refuse_secret_values(about: str, *, params: str = "{}", key: object = None) -> None:
    """Refuse parameters (as JSON), and a key or an id, with the value of a secret that this process has looked up.

    They would be on record. Masked they would be wrong, and two keys could become one. Reasons are masked instead.
    """
    if not MASKED:
        return
    if params != MASKED.masked_json(params):
        raise InvalidParameters(
            f"a parameter has the value of a secret ({about}); pass its name, to a Secret parameter"
        )
    if isinstance(key, str) and key != MASKED.masked(key):
        raise InvalidParameters(f"the key or the id has the value of a secret ({about}), and would be on record")


def on_record(job: Job) -> NewJob:
    """Return the row of a job in the ledger."""
    return NewJob(
        job.name, str(job.policy.type), job.policy.to_json(), job.signature.to_json(), job.doc or None, job.parent
    )


def checked_priority(priority: object) -> int:
    """Return `priority` if it is valid, otherwise raise."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not -1000 <= priority <= 1000:
        raise InvalidParameters(f"priority {priority!r} must be a whole number from -1000 to 1000")
    return priority


def instant_us(at: datetime | str, *, what: str = "at") -> int:
    """Read an instant of the calendar, given as an aware datetime or an ISO text with its zone."""
    try:
        moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        raise InvalidTick(f"{what} {at!r} is not a valid time; write it as 2026-01-01T00:00Z") from None
    if not isinstance(moment, datetime):
        raise InvalidTick(f"{what} {at!r} is not a valid time; give a datetime, or a text such as 2026-01-01T00:00Z")
    if moment.utcoffset() is None:
        raise InvalidTick(f"{what} {at} has no time zone; add one, as in 2026-01-01T00:00Z")
    at_us = microseconds(moment)
    if wrong := outside_calendar(at_us):
        raise InvalidTick(f"{what} {at} {wrong}")
    return at_us
