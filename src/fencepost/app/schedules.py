"""Schedules at run time: ``app.schedules.put("report:42", "report", every("1h"), params={"customer": 42})``.

They are durable: the ledger keeps them and every node plans them until they are deleted. Those declared in the code
are listed here too, and can be paused and resumed; to change one, change the code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.app.numbers import page_limit
from fencepost.app.pause_times import pause_end_us
from fencepost.app.records import OutlookRecord, ScheduleRecord
from fencepost.app.scoped import acting, actor, actor_or_none, require_job, schedule_check, schedule_id_check
from fencepost.core.duration import Duration
from fencepost.core.identity import canonical_json, schedule_id
from fencepost.core.nearest import nearest
from fencepost.core.overlap import exclusive_key
from fencepost.core.rights import HumanAct
from fencepost.core.schedule import Schedule, schedule_to_json
from fencepost.core.schedules.written import no_outlook
from fencepost.engine.requesting import refuse_secret_values
from fencepost.errors import NoSuchSchedule
from fencepost.ledger import jobs, schedules
from fencepost.ledger.removing import delete_schedule
from fencepost.ledger.schedule_rows import NewSchedule

if TYPE_CHECKING:
    from fencepost.app.declaring import JobHandle
    from fencepost.core.rights import Scope
    from fencepost.engine.requesting import KnownJob
    from fencepost.ledger.ledger import Ledger

Some = Collection[str] | None
"""Only these; None: all."""


class Schedules:
    """The schedules of a ledger: ``app.schedules``, and ``app.operations.schedules``."""

    def __init__(
        self, ledger: Ledger, scope: Scope, known: Callable[[str], KnownJob], wake: Callable[[], None]
    ) -> None:
        """Act on `ledger`, as `scope` allows. `known` returns what a job takes; `wake` wakes this process's node."""
        self._ledger = ledger
        self._scope = scope
        self._known = known
        self._wake = wake

    def put(
        self,
        id: str,
        job: str | JobHandle[...],
        schedule: Schedule,
        *,
        params: Mapping[str, Any] | None = None,
        by: str | None = None,
        reason: str | None = None,
        expect: str | None = None,
        is_new: bool = False,
    ) -> ScheduleRecord:
        """Make a schedule, or change the one of this id; it is planned from now on.

        `expect` is the version that the caller saw: `StateChanged` if it is another one by now, or was deleted. With
        `is_new`, the schedule must not exist yet.

        The parameters are checked against the job's function, or, if another deploy owns the job, against what that
        deploy has recorded.
        """
        from fencepost.app.declaring import as_schedule  # noqa: PLC0415 - it imports us

        due = as_schedule(schedule)
        known = self._known(job if isinstance(job, str) else job.name)
        require_job(self._scope, HumanAct.PUT_SCHEDULE, known.name)
        stored = known.signature.validate(params or {}, job=known.name)
        exclusive_key(known.name, known.policy, stored)  # raises if no key can be made: then no tick could be planned
        new = NewSchedule(schedule_id(id), known.name, schedule_to_json(due), canonical_json(stored))
        refuse_secret_values(f"schedule of job {known.name!r}", params=new.params, key=new.id)
        who, check = actor_or_none(self._scope, by), schedule_id_check(self._scope, expect)
        must = schedules.Must.BE_NEW if is_new else schedules.Must.EXIST if expect is not None else None
        with acting(self._scope):
            stored_now = schedules.put(self._ledger, new, by=who, reason=reason, check=check, must=must)
        entry = ScheduleRecord.of(stored_now)
        self._wake()
        return entry

    def get(self, id: str) -> ScheduleRecord:
        """Return one schedule, or raise `NoSuchSchedule`."""
        check = schedule_check(self._scope, HumanAct.LOOK)
        with self._naming_near():
            return ScheduleRecord.of(schedules.schedule(self._ledger, id, check=check))

    def list(
        self, *, job: str | None = None, jobs: Some = None, ids: Some = None, after_id: str = "", limit: int = 1000
    ) -> list[ScheduleRecord]:
        """Return schedules by id: of a job, of some jobs, or with some ids. For the next page, pass the last id."""
        visible, most = self._scope.visible, page_limit(limit)
        allowed = visible if jobs is None else frozenset(jobs) if visible is None else visible & frozenset(jobs)
        found = schedules.schedules(self._ledger, job=job, jobs=allowed, ids=ids, after_id=after_id, limit=most)
        return [ScheduleRecord.of(row) for row in found]

    def iterate(self, *, job: str | None = None) -> Iterator[ScheduleRecord]:
        """Yield all schedules by id, read page by page."""
        after = ""
        while page := self.list(job=job, after_id=after):
            yield from page
            after = page[-1].id

    def preview(self, id: str, *, count: int = 5, year: int | None = None) -> Sequence[OutlookRecord]:
        """Return the next `count` due times of a schedule, and its times near clock changes.

        These are the clock changes in `year`, by default the next two.
        `id` may also be the name of a job: then there is one answer for each of its schedules. For a schedule in
        no ledger, ``OutlookRecord.of`` returns the same.
        """
        try:
            found = tuple(self.iterate(job=id)) or (self.get(id),)
        except NoSuchSchedule:
            names = [row.name for row in jobs.jobs(self._ledger, names=self._scope.visible)]
            raise NoSuchSchedule(id, no_outlook(id, names, [each.id for each in self.list()])) from None
        now_us, most = self._ledger.now_us(), page_limit(count)
        return [OutlookRecord.of(each.schedule, now_us=now_us, count=most, year=year, name=each.id) for each in found]

    def pause(
        self,
        id: str,
        *,
        by: str,
        reason: str | None = None,
        until: datetime | str | None = None,
        duration: Duration | None = None,
        expect: str | None = None,
    ) -> ScheduleRecord:
        """Plan nothing more until `resume`, or until a time by the ledger's clock, or for a duration.

        At its end the pause ends by itself, as if a person had resumed it at that moment. To change the end, pause it
        again: without an end, it stays paused until `resume`.
        """
        who, check = actor(self._scope, by), schedule_check(self._scope, HumanAct.PAUSE_SCHEDULE, expect)
        until_us = pause_end_us(self._ledger, until=until, duration=duration)
        with acting(self._scope), self._naming_near():
            paused = schedules.pause(self._ledger, id, until_us=until_us, by=who, reason=reason, check=check)
        self._wake()
        return ScheduleRecord.of(paused)

    def resume(self, id: str, *, by: str, reason: str | None = None, expect: str | None = None) -> ScheduleRecord:
        """Plan again from now on. The due times of the pause are recorded as skipped."""
        who, check = actor(self._scope, by), schedule_check(self._scope, HumanAct.RESUME_SCHEDULE, expect)
        with acting(self._scope), self._naming_near():
            entry = ScheduleRecord.of(schedules.resume(self._ledger, id, by=who, reason=reason, check=check))
        self._wake()
        return entry

    def delete(
        self,
        id: str,
        *,
        by: str | None = None,
        reason: str | None = None,
        even_of_code: bool = False,
        expect: str | None = None,
    ) -> None:
        """Delete a schedule that was made at run time; `even_of_code` also one of a job that no living node has.

        Then its ticks that have not begun are skipped, if no living node has its job: no node would run them.
        """
        who, check = actor_or_none(self._scope, by), schedule_check(self._scope, HumanAct.DELETE_SCHEDULE, expect)
        delete = delete_schedule if even_of_code else schedules.delete
        with acting(self._scope), self._naming_near():
            delete(self._ledger, id, by=who, reason=reason, check=check)

    @contextmanager
    def _naming_near(self) -> Iterator[None]:
        """Name the most similar schedule that the caller may see where there is none with an id."""
        try:
            yield
        except NoSuchSchedule as error:
            near = nearest(error.schedule_id, [each.id for each in self.list()])
            if near is None:
                raise
            raise NoSuchSchedule(error.schedule_id, f"{error}; did you mean {near!r}?") from None
