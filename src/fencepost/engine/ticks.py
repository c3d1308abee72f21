"""From a due schedule to the runs it asks for: pure, between the planner and the rules of `core`."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass

from fencepost.core.events import Event, What
from fencepost.core.identity import params_hash, tick_key
from fencepost.core.misfire import Misfire, Plan, Planned, plan_schedule
from fencepost.core.overlap import exclusive_key
from fencepost.core.policy import Policy
from fencepost.core.runs import Requested
from fencepost.core.schedule import Schedule, schedule_from_json, window_start
from fencepost.core.schedules.jitter import jitter_us
from fencepost.errors import ConfigurationError
from fencepost.ledger.planning import SchedulePlan, ScheduleRow

_UNREADABLE_FOR_US = 60_000_000
_LARGEST_BATCH = 1000


@dataclass(frozen=True, slots=True)
class _Kind:
    """All ticks of a schedule have this in common; read from the row's texts once and kept."""

    schedule: Schedule
    policy: Policy
    misfire: Misfire
    exclusive_key: str | None
    params_hash: str


class ClockLeapt(Exception):
    """The ledger's clock is not to be believed: whatever was about to be planned by it must not be written."""


class Ticks:
    """Decides what becomes of the ticks of a schedule.

    `is_believed` is asked about the ledger's time before anything is decided by it, inside the transaction that would
    write it: a leap that is noticed one transaction later has moved every schedule already.
    """

    def __init__(self, *, horizon_us: int, emit: Callable[[Event], None], is_believed: Callable[[int], bool]) -> None:
        self._is_believed = is_believed
        self._horizon_us = horizon_us
        self._emit = emit

    def plan(self, now_us: int, row: ScheduleRow) -> SchedulePlan:
        """Plan one schedule up to the horizon.

        One that this release cannot plan (a newer deploy made it, or somebody by hand) is left as it is, and looked at
        again in a minute: it must not keep the others from being planned.
        """
        if not self._is_believed(now_us):
            raise ClockLeapt
        try:
            return self._planned(now_us, row)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one schedule is wrong with that one alone
            why = str(error) if isinstance(error, ConfigurationError) else repr(error)
            self._emit(Event(What.LEDGER_TROUBLE, job=row.job, reason=f"schedule {row.id!r} cannot be planned: {why}"))
            return SchedulePlan([], row.planned_through, now_us + _UNREADABLE_FOR_US)

    def _planned(self, now_us: int, row: ScheduleRow) -> SchedulePlan:
        kind = _kind((row.id, row.job, row.origin), row.spec, row.params, row.policy)
        plan = plan_schedule(
            kind.schedule,
            planned_through_us=row.planned_through,
            until_us=now_us + self._horizon_us,
            now_us=now_us,
            misfire=kind.misfire,
            limit=_LARGEST_BATCH,
        )
        return _as_rows(row, kind, plan)


@functools.lru_cache(maxsize=50_000)
def _kind(who: tuple[str, str, str], spec: str, params: str, policy_text: str) -> _Kind:
    schedule_id, job, origin = who
    policy = Policy.from_json(policy_text)
    values = json.loads(params)
    return _Kind(
        schedule=schedule_from_json(spec),
        policy=policy,
        misfire=Misfire.of(policy.misfire, grace=policy.grace_s),
        exclusive_key=exclusive_key(job, policy, values, runtime_schedule=schedule_id if origin == "runtime" else None),
        params_hash=params_hash(job, values),
    )


def _as_rows(row: ScheduleRow, kind: _Kind, plan: Plan) -> SchedulePlan:
    requested = [_requested(row, kind, item) for item in plan.items]
    return SchedulePlan(requested, plan.planned_through_us, plan.next_due_us)


def _requested(row: ScheduleRow, kind: _Kind, item: Planned) -> Requested:
    policy, is_run = kind.policy, item.kind == "run"
    return Requested(
        job=row.job,
        type=policy.type,
        params=row.params,
        params_hash=kind.params_hash,
        origin_key=tick_key(row.id, item.due_us),
        schedule=row.id,
        first_due_at_us=item.first_due_us,
        due_at_us=item.due_us,
        ticks=item.ticks,
        window_start_us=window_start(kind.schedule, item.first_due_us),
        window_end_us=item.due_us,
        available_at_us=item.due_us + jitter_us(kind.schedule, row.id, item.due_us),
        priority=policy.priority,
        queue=policy.queue,
        exclusive_key=kind.exclusive_key if is_run else None,
        sla_us=None if policy.sla_s is None else round(policy.sla_s * 1_000_000),
        generation=row.generation,
        state="queued" if is_run else "misfired",
        why=None if is_run else f"not planned in time; misfire is {kind.misfire}",
    )
