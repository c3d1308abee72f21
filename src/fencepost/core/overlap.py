"""Which runs exclude each other, and what becomes of one that finds its place taken.

Runs with the same *exclusive key* never run at the same time. The key is decided when a run is made, what
follows from it when the run is claimed, for only then is it known whether the place is taken.

===========  ===========================  ========================================
overlap      a tick whose key is taken    a requested run, or a retry, likewise
===========  ===========================  ========================================
forbid       is skipped, and says so      waits: somebody wants it, or it has begun
queue        waits                        waits
replace      has the holder stopped       as a tick; but a retry waits
allow        starts                       starts
===========  ===========================  ========================================

A run that makes good for several late ticks is treated as if it had been requested: after an outage it comes together
with the last tick that was planned before, and if that one happened to start first, the whole stretch would be skipped.

With `exclusive`, runs that share the key exclude each other whatever job they belong to; ``allow`` then
means ``queue``, for a key nobody respects would be none. A retry replaces nobody: the holder is newer.
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
    """Do not run it at all; `reason` is kept with it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Run it when the key is free."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Ask the holder to stop, and run it when the key is free."""


Decision = Start | SkipRun | Wait | Replace

START, WAIT, REPLACE = Start(), Wait(), Replace()
SKIP = SkipRun("the run before it has not ended, and overlap is forbid")
# Both were due, and whoever has the key got it in the very same claim.
SKIP_LATE = SkipRun("the run before it had not started when this one came due, and overlap is forbid")


def exclusive_key(
    job: str, policy: Policy, params: Mapping[str, Any], *, runtime_schedule: str | None = None
) -> str | None:
    """Return the key under which a run excludes others, or None if it excludes nobody.

    `runtime_schedule` is the id of a schedule that was created at run time, for its ticks and back-fills; None
    for the schedule declared in code and for requested runs. A thousand such schedules of one job do not block
    each other. A person's request gets the key of the one that has the same parameters (`app.operations`).
    """
    if policy.exclusive is not None:
        return fitted(_filled(policy.exclusive, params, job))
    if policy.overlap is Overlap.ALLOW:
        return None
    # A job's name has no colon, so no job's key can be that of another job's schedule.
    named = policy.known_as(job)
    return fitted(f"job:{named}" if runtime_schedule is None else f"job:{named}:{runtime_schedule}")


def decide(overlap: Overlap, *, is_tick: bool, attempts: int, key_is_taken: bool) -> Decision:
    """Decide about a run with an exclusive key that is about to be claimed; `attempts` are those it had before."""
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
            f"job {job!r} needs the parameter {name!r}, for its exclusive key is {template!r}: give it a value"
        )
    return value if isinstance(value, str) else canonical_json(value)
