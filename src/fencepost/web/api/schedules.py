"""Schedules: look at them, preview them, pause, resume, make, change and delete them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import Field

from fencepost.app.records import OutlookRecord, ScheduleRecord
from fencepost.app.records.results import DoneRecord
from fencepost.app.records.versions import schedule_version
from fencepost.core.identity import canonical_json
from fencepost.core.rights import HumanAct
from fencepost.core.schedule import Schedule, schedule_from_json
from fencepost.core.schedules.fields import LONGEST
from fencepost.core.schedules.written import written
from fencepost.core.tick import microseconds
from fencepost.errors import InvalidSchedule, NotInLedger
from fencepost.web.api.calls import ApiCall
from fencepost.web.api.fields import JobFilter, Limit, Name, Paused, Reasoned, ReasonQuery, need_unit
from fencepost.web.api.replies import ApiReply, page, reply
from fencepost.web.api.routes import ApiPage, ApiRoutes
from fencepost.web.api.runs import Params

ROUTES = ApiRoutes("schedules")
_LONGEST_SPEC = 4_000  # bytes of JSON: ten times the longest cron expression, or some 230 instants of `at()`
ScheduleId = Annotated[
    str, Path(min_length=1, max_length=200, description="The id of a schedule.", examples=["settle"])
]


class PutSchedule(Reasoned):
    """A schedule that is made at run time. `spec` is written as schedules show it."""

    job: Name
    spec: dict[str, Any] = Field(examples=[{"cron": "0 3 * * *", "tz": "Europe/Berlin"}])
    params: Params | None = None

    def schedule(self) -> Schedule:
        """Return the schedule, or refuse it."""
        try:
            text = canonical_json(self.spec)
            if len(text.encode()) <= _LONGEST_SPEC:
                return schedule_from_json(text)
        except (UnicodeEncodeError, ValueError, RecursionError) as error:
            if isinstance(error, InvalidSchedule):
                raise
            raise InvalidSchedule("this is not the spec of a schedule") from None
        raise InvalidSchedule(f"the spec of a schedule has at most {_LONGEST_SPEC} bytes")


@ROUTES.get("/schedules", needs=HumanAct.LOOK, shows=ApiPage(ScheduleRecord))
def list_(
    call: ApiCall,
    job: JobFilter = None,
    after: Annotated[str, Query(max_length=200)] = "",
    limit: Limit = 100,
) -> ApiReply:
    """Show schedules by id."""
    found = call.ask.schedules.list(job=job, after_id=after, limit=limit)
    return call.page(found, limit, **({"after": found[-1].id} if found else {}))


@ROUTES.get("/preview", needs=HumanAct.LOOK, shows=ApiPage(OutlookRecord))
def preview(
    call: ApiCall,
    *,
    of: Annotated[
        str, Query(min_length=1, max_length=LONGEST, description="A schedule, a job, a cron expression, or `every 5m`.")
    ],
    tz: Annotated[str, Query(max_length=60, description="The time zone of an expression.")] = "UTC",
    count: Annotated[int, Query(ge=0, le=500)] = 5,
    year: Annotated[int | None, Query(ge=1970, le=2999)] = None,
) -> ApiReply:
    """Show the next due times, and what changes of the clocks do to them."""
    try:
        return page(call.ask.schedules.preview(of, count=count, year=year), None)
    except NotInLedger:
        typed = written(of, tz=tz)
        if typed is None:
            raise
    return page([OutlookRecord.of(typed, now_us=microseconds(call.ask.now()), count=count, year=year)], None)


@ROUTES.get("/schedules/{schedule_id:path}", needs=HumanAct.LOOK, shows=ScheduleRecord)
def show(call: ApiCall, schedule_id: ScheduleId) -> ApiReply:
    """Show one schedule. Its ETag changes when it is edited, paused or resumed."""
    found = call.ask.schedules.get(schedule_id)
    return reply(found, etag=schedule_version(found))


@ROUTES.put("/schedules/{schedule_id:path}", needs=HumanAct.PUT_SCHEDULE, shows=ScheduleRecord)
def put(call: ApiCall, schedule_id: ScheduleId, body: PutSchedule) -> ApiReply:
    """Make a schedule, or change the one of this id. With `If-None-Match: *`, only make one."""
    return call.act(
        lambda: call.ask.schedules.put(
            schedule_id,
            body.job,
            body.schedule(),
            params=body.params,
            reason=body.reason,
            expect=call.expect,
            is_new=call.is_new,
        ),
        lambda done: done,
        within=ScheduleRecord.of,
        job=body.job,
    )


@ROUTES.delete("/schedules/{schedule_id:path}", needs=HumanAct.DELETE_SCHEDULE, shows=DoneRecord)
def delete(call: ApiCall, schedule_id: ScheduleId, reason: ReasonQuery = None, even_of_code: bool = False) -> ApiReply:
    """Delete a schedule that was made at run time; `even_of_code`: or one of a job that no living node has."""
    return call.act(
        lambda: call.ask.schedules.delete(schedule_id, reason=reason, even_of_code=even_of_code, expect=call.expect),
        lambda _: DoneRecord(done=True),
        within=lambda _: DoneRecord(done=True),
    )


@ROUTES.post("/schedules/{schedule_id:path}/pause", needs=HumanAct.PAUSE_SCHEDULE, shows=ScheduleRecord)
def pause(call: ApiCall, schedule_id: ScheduleId, body: Paused) -> ApiReply:
    """Plan nothing more until it is resumed, or until the pause ends by itself."""
    need_unit(body.duration, "duration")
    return call.act(
        lambda: call.ask.schedules.pause(
            schedule_id, reason=body.reason, until=body.until, duration=body.duration, expect=call.expect
        ),
        lambda done: done,
        within=ScheduleRecord.of,
    )


@ROUTES.post("/schedules/{schedule_id:path}/resume", needs=HumanAct.RESUME_SCHEDULE, shows=ScheduleRecord)
def resume(call: ApiCall, schedule_id: ScheduleId, body: Reasoned) -> ApiReply:
    """Plan again from now on."""
    return call.act(
        lambda: call.ask.schedules.resume(schedule_id, reason=body.reason, expect=call.expect),
        lambda done: done,
        within=ScheduleRecord.of,
    )
