"""Repetitions of due times that no run was made for: a pause, a change or the misfire policy passed over them.

Their records have no exclusive key, because they exclude nothing, and those of a pause have no queue and priority of
their job either. A repetition is a run like any other of its job, so it gets what the job's policy says.

**Not promised.** Anything for a job that was forgotten, or whose policy is of a later release: then the record is
repeated as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import select

from fencepost.core.identity import params_hash
from fencepost.core.overlap import exclusive_key
from fencepost.core.policy import Policy
from fencepost.core.states import RunState
from fencepost.errors import InvalidPolicy
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.history import RunRow

_RUNTIME = "runtime"
_PASSED_OVER = frozenset({RunState.SKIPPED, RunState.MISFIRED})


def as_planned(database: Database, cursor: Cursor, rows: Sequence[RunRow]) -> list[RunRow]:
    """Return rows of runs; those that were passed over with the key, queue and priority of a run of their job."""
    passed_over = [row for row in rows if _was_passed_over(row)]
    if not passed_over:
        return list(rows)
    job, schedule = database.tables.job.c, database.tables.schedule.c
    names, ids = {row.job for row in passed_over}, {row.schedule for row in passed_over}
    policies: dict[str, str] = dict(database.rows(cursor, select(job.name, job.policy).where(job.name.in_(names))))
    origins: dict[str | None, str] = dict(
        database.rows(cursor, select(schedule.id, schedule.origin).where(schedule.id.in_(ids)))
    )
    return [
        _planned(row, policies.get(row.job), origins.get(row.schedule)) if _was_passed_over(row) else row
        for row in rows
    ]


def _was_passed_over(row: RunRow) -> bool:
    is_unused = row.attempts == 0 and row.exclusive_key is None
    return is_unused and row.schedule is not None and row.state in _PASSED_OVER


def _planned(row: RunRow, policy_text: str | None, origin: str | None) -> RunRow:
    if policy_text is None:
        return row
    try:
        policy = Policy.from_json(policy_text)
    except InvalidPolicy:
        return row
    params = json.loads(row.params)
    runtime_schedule = row.schedule if origin == _RUNTIME else None
    return row._replace(
        exclusive_key=exclusive_key(row.job, policy, params, runtime_schedule=runtime_schedule),
        queue=policy.queue,
        priority=policy.priority,
        params_hash=row.params_hash or params_hash(policy.known_as(row.job), params),
    )
