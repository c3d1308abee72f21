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

MOST_BACKFILLED = 10_000


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
) -> list[Requested]:
    """Return one request per due time of `schedules` within `range_us`, both ends included."""
    first_us, last_us = range_us
    if not schedules:
        raise InvalidParameters(f"job {job.name!r} has no such schedule, so there are no due times to fill")
    if last_us < first_us:
        raise InvalidParameters(f"the range ends ({spelled_us(last_us)}) before it begins ({spelled_us(first_us)})")
    parsed = [(row, schedule_from_json(row.spec)) for row in schedules]
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
