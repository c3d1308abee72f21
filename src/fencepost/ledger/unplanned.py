"""Repetitions of due times that no run was made for: a pause, a change or the misfire policy passed over them.

Their records have no exclusive key, because they exclude nothing, and those of a pause have no queue and priority of
their job either. A repetition is a run like any other of its job, so it gets what the job's policy says.

It is the job under its present name, if it was renamed since. Its window is that of all due times together.

**Not promised.** Anything for a job that was forgotten, or whose policy is of a later release: then the record is
repeated as it is. Nor the whole window of a record of an earlier version, which has only its end, if the schedule is
another one since: then it is empty.
"""

from __future__ import annotations

import json

from sqlalchemy import select

from fencepost.core.identity import params_hash
from fencepost.core.overlap import exclusive_key
from fencepost.core.policy import Policy
from fencepost.core.schedule import schedule_from_json, window_start
from fencepost.core.states import RunState
from fencepost.errors import InvalidPolicy, InvalidSchedule
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.history import RunRow
from fencepost.ledger.renaming import present_name_within

_RUNTIME = "runtime"
_PASSED_OVER = frozenset({RunState.SKIPPED, RunState.MISFIRED})


def as_planned(database: Database, cursor: Cursor, row: RunRow, *, key: str | None = None) -> RunRow:
    """Return the row of a run; if it was passed over, with the key, queue, priority and window of a run of its job.

    `key` is its exclusive key, if it is known already. Raises `InvalidParameters` where the job's key needs a parameter
    that the row has not: there would be nothing to exclude by.
    """
    if not _was_passed_over(row):
        return row
    row = _with_window(database, cursor, row)
    name = present_name_within(database, cursor, row.job)
    job, schedule = database.tables.job.c, database.tables.schedule.c
    policies = database.rows(cursor, select(job.policy).where(job.name == name))
    origins = database.rows(cursor, select(schedule.origin).where(schedule.id == row.schedule))
    try:
        policy = Policy.from_json(policies[0][0]) if policies else None
    except InvalidPolicy:
        return row
    if policy is None:
        return row
    params = json.loads(row.params)
    runtime_schedule = row.schedule if origins and origins[0][0] == _RUNTIME else None
    return row._replace(
        exclusive_key=key or exclusive_key(name, policy, params, runtime_schedule=runtime_schedule),
        queue=policy.queue,
        priority=policy.priority,
        params_hash=row.params_hash or params_hash(policy.known_as(name), params),
    )


def with_window(database: Database, row: RunRow) -> RunRow:
    """Return the row of a run, with the window that its repetition has."""
    return database.read(lambda cursor: _with_window(database, cursor, row)) if _lacks_window(row) else row


def _lacks_window(row: RunRow) -> bool:
    return _was_passed_over(row) and row.window_end is not None and row.window_start is None


def _with_window(database: Database, cursor: Cursor, row: RunRow) -> RunRow:
    if not _lacks_window(row):
        return row
    schedule = database.tables.schedule.c
    found = database.rows(cursor, select(schedule.spec).where(schedule.id == row.schedule))
    return row._replace(window_start=_window_start(found[0][0], row)) if found else row


def _window_start(spec: str, row: RunRow) -> int | None:
    """Return where the window of the first due time begins; None if that is unknown, or before all due times."""
    try:
        schedule = schedule_from_json(spec)
    except InvalidSchedule:  # of a later release
        return None
    last_us = row.due_at or 0
    first_us = last_us if row.first_due_at is None else row.first_due_at
    is_the_same = schedule.due_after(first_us - 1) == first_us and schedule.due_before(last_us + 1) == last_us
    if not is_the_same or schedule.count(first_us - 1, last_us) != row.ticks:
        return None
    return window_start(schedule, first_us)


def _was_passed_over(row: RunRow) -> bool:
    is_unused = row.attempts == 0 and row.exclusive_key is None
    return is_unused and row.schedule is not None and row.state in _PASSED_OVER
