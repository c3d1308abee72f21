"""Back-fills: one run for each due time of a range in the past. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fencepost.core.identity import backfill_key
from fencepost.core.runs import Requested
from fencepost.core.schedule import Schedule, schedule_from_json, window_start
from fencepost.core.tick import spelled_us
from fencepost.engine.requesting import KnownJob, Request, requested
from fencepost.errors import InvalidParameters
from fencepost.ledger.schedule_rows import RUNTIME, StoredSchedule

MOST_BACKFILLED = 10_000  # runs of one request, so that a mistaken range is refused; the caller can allow more


class Backfilled(NamedTuple):
    """How many runs a back-fill requested, and how many of them are new. The same `key` again adds none."""

    key: str
    asked: int
    new: int


def backfill_requests(
    job: KnownJob,
    schedules: Sequence[StoredSchedule],
    *,
    range_us: tuple[int, int],
    request: Request,
    key: str,
    params: Mapping[str, Any] | None,
    limit: int,
    now_us: int,
) -> list[Requested]:
    """Return one request per due time of `schedules` within `range_us`, both ends included.

    Raise if one of them is still to come: its schedule makes that run when it is due.
    """
    first_us, last_us = range_us
    if not schedules:
        raise InvalidParameters(f"job {job.name!r} has no such schedule, so there are no due times to fill")
    if last_us < first_us:
        raise InvalidParameters(f"the range ends ({spelled_us(last_us)}) before it begins ({spelled_us(first_us)})")
    parsed = [(row, schedule_from_json(row.spec)) for row in schedules]
    _refuse_to_come(job, parsed, now_us, last_us=last_us)
    total = sum(schedule.count(first_us - 1, last_us) for _, schedule in parsed)
    if total > limit:
        raise InvalidParameters(
            f"job {job.name!r} was due {total} times from {spelled_us(first_us)} to {spelled_us(last_us)}, and at most "
            f"{limit} are filled at once; take a shorter range, or allow more: --limit {total}, in code limit={total}"
        )
    return [
        _requested(job, row, schedule, due_us=due_us, request=request, key=key, params=params)
        for row, schedule in parsed
        for due_us in schedule.dues(first_us - 1, last_us, total)
    ]


def _refuse_to_come(
    job: KnownJob, parsed: Sequence[tuple[StoredSchedule, Schedule]], now_us: int, *, last_us: int
) -> None:
    to_come = [(due_us, row.id) for row, each in parsed if (due_us := each.due_after(now_us)) is not None]
    due_us, schedule = min(to_come, default=(last_us + 1, ""))
    if due_us <= last_us:
        raise InvalidParameters(
            f"a back-fill runs due times of the past, and job {job.name!r} is due at {spelled_us(due_us)} (schedule "
            f"{schedule!r}), which is still to come: by the ledger's clock it is {spelled_us(now_us)}. Nothing was "
            "requested: end the range before that. Its schedule makes that run when it is due"
        )


def _requested(
    job: KnownJob,
    row: StoredSchedule,
    schedule: Schedule,
    *,
    due_us: int,
    request: Request,
    key: str,
    params: Mapping[str, Any] | None,
) -> Requested:
    start_us = window_start(schedule, due_us)
    of_this = replace(
        request,
        origin_key=backfill_key(row.id, due_us, key),
        schedule=row.id,
        due_at_us=due_us,
        window_us=(due_us if start_us is None else start_us, due_us),
        runtime_schedule=row.id if row.origin == RUNTIME else None,
    )
    asked = requested(job, json.loads(row.params) if params is None else params, of_this)
    return asked._replace(sla_us=None)  # counted from a due time in the past, the SLA would be missed from the start
