"""Schedules: when they are due next, both changes of the clocks, pause and resume; and what an edit would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import RedirectResponse, Response

from fencepost.app.records import OutlookRecord
from fencepost.app.records.versions import schedule_version
from fencepost.core.duration import typed_duration
from fencepost.core.rights import HumanAct
from fencepost.core.schedule import schedule_to_json
from fencepost.core.tick import microseconds
from fencepost.errors import ConfigurationError, FencepostError, InvalidParameters, StateChanged
from fencepost.web.did import did_sentence
from fencepost.web.editing import Edit, due_changes, read_edit
from fencepost.web.exporting import MOST_EXPORTED, export
from fencepost.web.pages.run import reason_of
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes
from fencepost.web.visits import segment

if TYPE_CHECKING:
    from fencepost.app.records import ScheduleRecord
    from fencepost.web.visits import Visit

PAGES = PageRoutes()
_PAGE = 100  # schedules; a link leads to the next ones
_PAUSE = ("paused_at", "paused_by", "pause_reason", "paused_until")
_COLUMNS = ("id", "job", "when", "origin", "next_due_at", *_PAUSE, "unserved_at")


@PAGES.get("/schedules", needs=HumanAct.LOOK)
def schedules(visit: Visit) -> Response:
    """Show a page of schedules."""
    ask = visit.ask
    job, after = visit.query.get("job") or None, visit.query.get("after", "")
    rows = ask.schedules.list(job=job, after_id=after, limit=_PAGE + 1)
    found = rows[:_PAGE]
    return render(
        visit,
        "schedules.html",
        now=ask.now(),
        schedules=found,
        job=job,
        next_after=found[-1].id if len(rows) > _PAGE else None,
        live=not after,
    )


@PAGES.get("/schedules.{form}", needs=HumanAct.EXPORT)
def schedules_exported(visit: Visit) -> Response:
    """Give the schedules to programs."""
    found = visit.ask.schedules.list(job=visit.query.get("job") or None, limit=MOST_EXPORTED + 1)
    is_cut = len(found) > MOST_EXPORTED
    return export(str(visit.where["form"]), "schedules", found[:MOST_EXPORTED], _COLUMNS, is_cut=is_cut)


@PAGES.post("/schedules/{id:path}/pause", needs=HumanAct.PAUSE_SCHEDULE)
def pause(visit: Visit) -> Response:
    """Plan nothing more until it is resumed."""
    found = _unchanged(visit, HumanAct.PAUSE_SCHEDULE)
    until, duration = pause_end_of(visit)
    expect = schedule_version(found)
    visit.ask.schedules.pause(found.id, reason=reason_of(visit), until=until, duration=duration, expect=expect)
    return _done(visit, found.id, "paused")


@PAGES.post("/schedules/{id:path}/resume", needs=HumanAct.RESUME_SCHEDULE)
def resume(visit: Visit) -> Response:
    """Plan again from now on."""
    found = _unchanged(visit, HumanAct.RESUME_SCHEDULE)
    visit.ask.schedules.resume(found.id, reason=reason_of(visit), expect=schedule_version(found))
    return _done(visit, found.id, "resumed")


@PAGES.post("/schedules/{id:path}/edit", needs=HumanAct.PUT_SCHEDULE)
def edit(visit: Visit) -> Response:
    """Save an edit of a schedule that was made at run time, as it was shown before."""
    found = _unchanged(visit, HumanAct.PUT_SCHEDULE)
    if found.is_in_code:
        raise InvalidParameters(f"{found.id} stands in the code of its job: change it there, and deploy")
    wanted: Edit = read_edit(visit.form)
    params = found.params if isinstance(found.params, dict) else {}
    expect = schedule_version(found)
    visit.ask.schedules.put(found.id, found.job, wanted.schedule, params=params, reason=reason_of(visit), expect=expect)
    return _done(visit, found.id, "saved")


@PAGES.post("/schedules/{id:path}/delete", needs=HumanAct.DELETE_SCHEDULE)
def delete(visit: Visit) -> Response:
    """Delete a schedule that was made at run time, if its id was typed."""
    found = _unchanged(visit, HumanAct.DELETE_SCHEDULE)
    if visit.text("confirm") != found.id:
        raise InvalidParameters(f"to delete it, type its id, {found.id}")
    visit.ask.schedules.delete(found.id, reason=reason_of(visit), expect=schedule_version(found))
    return RedirectResponse(visit.url("/schedules", did="deleted"), 303)


@PAGES.get("/schedules/{id:path}", needs=HumanAct.LOOK)
def schedule(visit: Visit) -> Response:
    """Show one schedule: what it will do, and with an edit what that would change."""
    ask = visit.ask
    found, now = ask.schedules.get(visit.where["id"]), ask.now()
    values: dict[str, Any] = {"outlook": None, "damaged": None, "edit": None, "changes": None, "wrong": None}
    try:
        due, now_us = found.schedule, microseconds(now)
        values["outlook"] = OutlookRecord.of(due, now_us=now_us, count=10, year=_year(visit), name=found.id)
    except (FencepostError, ValueError) as error:
        values["damaged"] = str(error)
    status = 200
    if visit.query.get("when"):
        try:
            values["edit"] = edit = read_edit(visit.query)
            values["changes"] = due_changes(found.schedule, edit.schedule, now_us=microseconds(now))
        except ConfigurationError as error:
            values["wrong"], status = str(error), 400
    return render(
        visit,
        "schedule.html",
        status=status,
        now=now,
        did=did_sentence(visit),
        schedule=found,
        own=_tz(found),
        drawn_mark=drawn_mark,
        **values,
    )


def _unchanged(visit: Visit, act: HumanAct) -> ScheduleRecord:
    """Return the schedule of a form, unless somebody has changed, paused or resumed it since the form was drawn.

    The act itself compares once more, in its own transaction: pass the `schedule_version` of what this returns.
    """
    found = visit.ask.schedules.get(visit.where["id"], to=act)
    if visit.form.get("drawn") != drawn_mark(found):
        raise StateChanged(
            f"schedule {found.id} was changed, paused or resumed since the page was drawn. Nothing was done: look at "
            "it again"
        )
    return found


def drawn_mark(found: ScheduleRecord) -> str:
    """Return what a form carries of the schedule that it was drawn for."""
    try:
        spec = schedule_to_json(found.schedule)
    except FencepostError:
        spec = str(found.spec)
    paused = f"paused until {found.paused_until}" if found.paused_until else "paused"
    return f"{spec} {paused if found.paused_at else 'planned'}"


def pause_end_of(visit: Visit) -> tuple[str | None, str | None]:
    """Return the end of a pause as it was typed: a time, or a duration."""
    return visit.text("until") or None, typed_duration(visit.text("for"), what="for")


def _done(visit: Visit, id_: str, did: str) -> Response:
    return RedirectResponse(visit.url(f"/schedules/{segment(id_)}", did=did), 303)


def _tz(found: ScheduleRecord) -> str | None:
    return str(found.spec.get("tz", "UTC")) if isinstance(found.spec, dict) else None


def _year(visit: Visit) -> int | None:
    year = visit.query.get("year", "")
    return int(year) if year.isascii() and year.isdigit() and len(year) == 4 else None
