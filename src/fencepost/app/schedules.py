"""Schedules at run time: ``app.schedules.put("report:42", "report", every("1h"), params={"customer": 42})``.

They are durable: kept in the ledger, planned by every node, until somebody deletes them. Those that stand in the code
are seen here too, and can be paused and resumed; to change one, change the code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.core.identity import canonical_json, schedule_id
from fencepost.core.overlap import exclusive_key
from fencepost.core.schedule import Schedule, describe, schedule_from_json, schedule_to_json
from fencepost.core.tick import instant
from fencepost.ledger import schedules
from fencepost.ledger.schedule_rows import NewSchedule, StoredSchedule

if TYPE_CHECKING:
    from fencepost.app.application import App
    from fencepost.app.declaring import JobHandle


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """A schedule on record. `next_due_at` is None while it is paused, and when no due time is left."""

    id: str
    job: str
    schedule: Schedule
    params: Mapping[str, Any]
    is_in_code: bool
    next_due_at: datetime | None
    planned_through: datetime
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None

    @staticmethod
    def of(row: StoredSchedule) -> ScheduleEntry:
        """Read a row of the ledger."""
        return ScheduleEntry(
            id=row.id,
            job=row.job,
            schedule=schedule_from_json(row.spec),
            params=json.loads(row.params),
            is_in_code=row.origin == "code",
            next_due_at=_instant(row.next_due_at),
            planned_through=instant(row.planned_through),
            paused_at=_instant(row.paused_at),
            paused_by=row.paused_by,
            pause_reason=row.pause_reason,
        )

    def __str__(self) -> str:
        return f"{self.id}: {self.job}, {describe(self.schedule)}{' (paused)' if self.paused_at else ''}"


class Schedules:
    """The schedules of the application's ledger."""

    def __init__(self, app: App) -> None:
        self._app = app

    def put(
        self,
        id: str,
        job: str | JobHandle[...],
        schedule: Schedule,
        *,
        params: Mapping[str, Any] | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> ScheduleEntry:
        """Make a schedule, or change the one of this id; it is planned from now on.

        The parameters are checked against the job's function, or, if another deploy owns the job, against what that
        deploy has put on record.
        """
        from fencepost.app.declaring import as_schedule  # noqa: PLC0415 - it imports us

        due = as_schedule(schedule)
        known = self._app.operations.job(job if isinstance(job, str) else job.name)
        stored = known.signature.validate(params or {}, job=known.name)
        exclusive_key(known.name, known.policy, stored)  # it must be possible to make one, or no tick could be planned
        new = NewSchedule(schedule_id(id), known.name, schedule_to_json(due), canonical_json(stored))
        entry = ScheduleEntry.of(schedules.put(self._app.ledger, new, by=by, reason=reason))
        self._app.wake()
        return entry

    def get(self, id: str) -> ScheduleEntry:
        """Return one schedule, or raise `NoSuchSchedule`."""
        return ScheduleEntry.of(schedules.schedule(self._app.ledger, id))

    def list(self, *, job: str | None = None, after_id: str = "", limit: int = 1000) -> list[ScheduleEntry]:
        """Return schedules by id; go on after the last one's id."""
        found = schedules.schedules(self._app.ledger, job=job, after_id=after_id, limit=limit)
        return [ScheduleEntry.of(row) for row in found]

    def pause(self, id: str, *, by: str, reason: str | None = None) -> ScheduleEntry:
        """Plan nothing more until `resume`."""
        return ScheduleEntry.of(schedules.pause(self._app.ledger, id, by=by, reason=reason))

    def resume(self, id: str, *, by: str, reason: str | None = None) -> ScheduleEntry:
        """Plan again from now on; what was passed over is on record as skipped."""
        entry = ScheduleEntry.of(schedules.resume(self._app.ledger, id, by=by, reason=reason))
        self._app.wake()
        return entry

    def delete(self, id: str, *, by: str | None = None, reason: str | None = None) -> None:
        """Delete a schedule that was made at run time."""
        schedules.delete(self._app.ledger, id, by=by, reason=reason)


def _instant(at_us: int | None) -> datetime | None:
    return None if at_us is None else instant(at_us)
