"""Schedules in the name of one caller: ``authorized.schedules``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from fencepost.access.authority import CALLER, Authority
from fencepost.app.records import OutlookRecord, ScheduleRecord
from fencepost.app.schedules import Some
from fencepost.core.duration import Duration
from fencepost.core.rights import HumanAct
from fencepost.core.schedule import Schedule


class AuthorizedSchedules:
    """The schedules of the jobs that a caller may see: the methods of `fencepost.app.schedules.Schedules`."""

    def __init__(self, authority: Authority) -> None:
        """Reach schedules by `authority`."""
        self._authority = authority

    def get(self, id: str, *, to: HumanAct = HumanAct.LOOK) -> ScheduleRecord:
        """Return one schedule, or raise `NoSuchSchedule`; with `to`, that is recorded as a refused try at this act."""
        return self._authority.looks(lambda ops: ops.schedules.get(id), to, schedule=id)

    def iterate(self, *, job: str | None = None) -> Iterator[ScheduleRecord]:
        """Yield all schedules by id, read page by page."""
        return self._authority.looks(lambda ops: ops.schedules.iterate(job=job))

    def preview(self, id: str, *, count: int = 5, year: int | None = None) -> Sequence[OutlookRecord]:
        """Return the next due times of a schedule, or of those of a job, and what changes of the clocks do to it."""
        return self._authority.looks(lambda ops: ops.schedules.preview(id, count=count, year=year))

    def put(
        self,
        id: str,
        job: str,
        schedule: Schedule,
        *,
        params: Mapping[str, Any] | None = None,
        reason: str | None = None,
        expect: str | None = None,
        is_new: bool = False,
    ) -> ScheduleRecord:
        """Make a schedule, or change the one of this id; it is planned from now on. `expect`: see `Schedules.put`."""
        return self._authority.acts(
            HumanAct.PUT_SCHEDULE,
            reason,
            lambda ops: ops.schedules.put(
                id, job, schedule, params=params, reason=reason, expect=expect, is_new=is_new
            ),
            schedule=id,
            job=job,
        )

    def pause(
        self,
        id: str,
        *,
        reason: str | None = None,
        until: datetime | str | None = None,
        duration: Duration | None = None,
        expect: str | None = None,
    ) -> ScheduleRecord:
        """Plan nothing more until `resume`, or until the pause ends by itself: see `Schedules.pause`."""
        return self._authority.acts(
            HumanAct.PAUSE_SCHEDULE,
            reason,
            lambda ops: ops.schedules.pause(
                id, by=CALLER, reason=reason, until=until, duration=duration, expect=expect
            ),
            schedule=id,
        )

    def resume(self, id: str, *, reason: str | None = None, expect: str | None = None) -> ScheduleRecord:
        """Plan again from now on; what was passed over is on record as skipped."""
        return self._authority.acts(
            HumanAct.RESUME_SCHEDULE,
            reason,
            lambda ops: ops.schedules.resume(id, by=CALLER, reason=reason, expect=expect),
            schedule=id,
        )

    def delete(
        self, id: str, *, reason: str | None = None, even_of_code: bool = False, expect: str | None = None
    ) -> None:
        """Delete a schedule that was made at run time; `even_of_code` also one of a job that no living node has."""
        return self._authority.acts(
            HumanAct.DELETE_SCHEDULE,
            reason,
            lambda ops: ops.schedules.delete(id, reason=reason, even_of_code=even_of_code, expect=expect),
            schedule=id,
        )

    def list(
        self, *, job: str | None = None, jobs: Some = None, ids: Some = None, after_id: str = "", limit: int = 1000
    ) -> list[ScheduleRecord]:
        """Return schedules by id: of a job, of some jobs, or with some ids; go on after the last one's id."""
        return self._authority.looks(
            lambda ops: ops.schedules.list(job=job, jobs=jobs, ids=ids, after_id=after_id, limit=limit)
        )
