"""Versions of runs, schedules and pauses: short texts that change when what an act depends on does.

An act with ``expect=`` is done only if the row still has the version that the caller saw. It is compared in the act's
own transaction, with the row locked, so nothing can change in between.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from fencepost.core.identity import canonical_json

if TYPE_CHECKING:
    from fencepost.app.records.jobs import ScheduleRecord
    from fencepost.app.records.pauses import PauseRecord
    from fencepost.app.records.runs import RunRecord
    from fencepost.ledger.history import RunRow

_LENGTH = 16  # 64 bits: two states of one row never have the same by chance


def run_version(run: RunRecord | RunRow) -> str:
    """Return the version of a run: another one after each claim, each end, each wait, and a request to cancel it.

    Progress does not change it: no act depends on that.
    """
    return _hashed([run.id, run.state, run.attempts, run.waits_for, run.cancel_requested_at is not None])


def schedule_version(schedule: ScheduleRecord) -> str:
    """Return the version of a schedule: another one after each edit, pause and resumption, not after planning."""
    paused = None if schedule.paused_at is None else schedule.paused_at.isoformat()
    ends = [] if schedule.paused_until is None else [schedule.paused_until.isoformat()]
    fields = [schedule.id, schedule.job, schedule.spec, schedule.params, schedule.origin, paused]
    return _hashed([*fields, schedule.created_at.isoformat(), *ends])


def pause_version(pause: PauseRecord | None) -> str:
    """Return the version of the pause of a queue: another one after each pause and resumption; None: not paused."""
    if pause is None:
        return _hashed([])
    until = None if pause.paused_until is None else pause.paused_until.isoformat()
    return _hashed([pause.queue, pause.paused_at.isoformat(), pause.paused_by, until, pause.reason])


def _hashed(fields: list[object]) -> str:
    return hashlib.sha256(canonical_json(fields).encode()).hexdigest()[:_LENGTH]
