"""Creates the run of a stretch of due times, as it is recorded. Pure."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.core.identity import params_hash, tick_key
from fencepost.core.misfire import Misfire, PlannedStretch
from fencepost.core.overlap import exclusive_key
from fencepost.core.policy import Policy
from fencepost.core.runs import Requested
from fencepost.core.schedule import Schedule, schedule_from_json, window_start
from fencepost.core.schedules.jitter import jitter_us
from fencepost.core.search_keys import SearchKeys, search_keys


class Ticking(NamedTuple):
    """A stored schedule. `spec`, `params` and its job's `policy` are JSON; `origin` is *code* or *runtime*."""

    id: str
    job: str
    spec: str
    params: str
    origin: str
    generation: int
    policy: str


@dataclass(frozen=True, slots=True)
class TickKind:
    """What all ticks of a schedule have in common; parsed once from the row's texts and cached."""

    schedule: Schedule
    policy: Policy
    misfire: Misfire
    exclusive_key: str | None
    params_hash: str
    search: SearchKeys


def kind_of(which: Ticking) -> TickKind:
    """Return what the ticks of a schedule have in common. Raises if this version cannot parse the schedule."""
    return _kind((which.id, which.job, which.origin), which.spec, which.params, which.policy)


@functools.lru_cache(maxsize=50_000)
def _kind(who: tuple[str, str, str], spec: str, params: str, policy_text: str) -> TickKind:
    schedule_id, job, origin = who
    policy = Policy.from_json(policy_text)
    values = json.loads(params)
    return TickKind(
        schedule=schedule_from_json(spec),
        policy=policy,
        misfire=Misfire.of(policy.misfire, grace=policy.grace_s),
        exclusive_key=exclusive_key(job, policy, values, runtime_schedule=schedule_id if origin == "runtime" else None),
        params_hash=params_hash(policy.known_as(job), values),
        search=search_keys(policy.search, values),
    )


def requested(which: Ticking, kind: TickKind, item: PlannedStretch) -> Requested:
    """Return the run for a stretch of due times, or the record that it misfired."""
    policy, is_run = kind.policy, item.kind == "run"
    return Requested(
        job=which.job,
        type=policy.type,
        params=which.params,
        params_hash=kind.params_hash,
        origin_key=tick_key(which.id, item.due_us),
        schedule=which.id,
        first_due_at_us=item.first_due_us,
        due_at_us=item.due_us,
        ticks=item.ticks,
        window_start_us=window_start(kind.schedule, item.first_due_us),
        window_end_us=item.due_us,
        available_at_us=item.due_us + jitter_us(kind.schedule, which.id, item.due_us),
        priority=policy.priority,
        queue=policy.queue,
        exclusive_key=kind.exclusive_key if is_run else None,
        sla_us=None if policy.sla_s is None else round(policy.sla_s * 1_000_000),
        generation=which.generation,
        state="queued" if is_run else "misfired",
        why=None if is_run else f"not planned in time; misfire is {kind.misfire}",
        search=kind.search,
    )
