"""Which runs exclude each other, and what happens to a run whose exclusive key is taken.

Runs with the same *exclusive key* never run at the same time. The key is set when a run is recorded. What happens if it
is taken is decided when the run is claimed, because only then it is known whether it is.

===========  ===========================  ========================================
overlap      a tick whose key is taken    a requested run, or a retry, whose key is taken
===========  ===========================  ========================================
forbid       is skipped, with a reason    waits: it was requested, or has begun
queue        waits                        waits
replace      stops the holder             the same for a request; a retry waits
allow        starts                       starts
===========  ===========================  ========================================

A run that stands for several late ticks is treated as a requested one. After an outage it is claimed together with the
last tick that was planned before; if that one started first, the whole stretch would be skipped.

With `exclusive`, runs with the same key exclude each other even if they belong to different jobs. ``allow`` then means
``queue``, because a key must be respected. A retry never replaces the holder, because the holder is newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any

from fencepost.core.identity import canonical_json, fitted
from fencepost.core.policy import Overlap, Policy
from fencepost.errors import InvalidParameters


@dataclass(frozen=True, slots=True)
class Start:
    """Run it now."""


@dataclass(frozen=True, slots=True)
class SkipRun:
    """Do not run it; `reason` is stored with it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Run it when the key is free."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Ask the holder to stop, and run it when the key is free."""


Decision = Start | SkipRun | Wait | Replace

START, WAIT, REPLACE = Start(), Wait(), Replace()
_FORBIDDEN = "overlap is forbid"
SKIP = SkipRun(f"the previous run has not ended, and {_FORBIDDEN}")
# Both runs were due, and the other one got the key in the same claim.
SKIP_LATE = SkipRun(f"the previous run had not started when this one came due, and {_FORBIDDEN}")


def lost_to_catching_up(holder: int, ticks: int) -> str:
    """Say why a tick is skipped that lost to run `holder`, which makes good for `ticks` due times before it."""
    return f"run {holder}, which makes good for {ticks} missed due times, has not ended, and {_FORBIDDEN}"


def was_kept_out(reason: str | None) -> bool:
    """Whether a run was skipped because another one had its exclusive key, by the reason that is stored with it."""
    return reason is not None and _FORBIDDEN in reason


def exclusive_key(
    job: str, policy: Policy, params: Mapping[str, Any], *, runtime_schedule: str | None = None
) -> str | None:
    """Return the exclusive key of a run, or None if it excludes no other run.

    `runtime_schedule` is the id of a schedule that was created at run time, for its ticks and back-fills. It is None
    for the schedule declared in code and for requested runs. Schedules created at run time do not block each other. An
    operator's request gets the key of the schedule that has the same parameters (`app.operations`).
    """
    if policy.exclusive is not None:
        return fitted(_filled(policy.exclusive, params, job))
    if policy.overlap is Overlap.ALLOW:
        return None
    # A job name has no colon, so the key of a job cannot equal that of another job's schedule.
    named = policy.known_as(job)
    return fitted(f"job:{named}" if runtime_schedule is None else f"job:{named}:{runtime_schedule}")


def decide(overlap: Overlap, *, is_tick: bool, attempts: int, key_is_taken: bool) -> Decision:
    """Decide about a run with an exclusive key that is about to be claimed; `attempts` counts its earlier attempts."""
    if not key_is_taken:
        return START
    if attempts == 0 and overlap is Overlap.REPLACE:
        return REPLACE
    if attempts == 0 and is_tick and overlap is Overlap.FORBID:
        return SKIP
    return WAIT


def _filled(template: str, params: Mapping[str, Any], job: str) -> str:
    parts = []
    for text, name, _, _ in Formatter().parse(template):
        parts.append(text)
        if name is not None:
            parts.append(_value_of(name, params, template=template, job=job))
    return "".join(parts)


def _value_of(name: str, params: Mapping[str, Any], *, template: str, job: str) -> str:
    value = params.get(name)
    if value is None:
        raise InvalidParameters(
            f"job {job!r} needs the parameter {name!r}, because its exclusive key is {template!r}: give it a value"
        )
    return value if isinstance(value, str) else canonical_json(value)
