"""Making a schedule at run time: a form made from the job's signature, its due times, and only then the act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import RedirectResponse, Response

from fencepost.app.records import OutlookRecord
from fencepost.core.identity import schedule_id
from fencepost.core.rights import HumanAct
from fencepost.core.tick import microseconds
from fencepost.errors import ConfigurationError, StateChanged
from fencepost.web.commands import shell_line
from fencepost.web.editing import read_edit
from fencepost.web.pages.run import reason_of
from fencepost.web.parameter_forms import MORE, PREFIX, parameter_fields, takes_more, typed_parameters
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes
from fencepost.web.visits import segment

if TYPE_CHECKING:
    from fencepost.web.visits import Visit

PAGES = PageRoutes()
_DUES = 10  # due times that are shown first, as many as on the page of a schedule
_OWN = ("id", "when", "zone", "dst")

Typed = Sequence[tuple[str, str]]


@PAGES.get("/jobs/{job:path}/schedule", needs=HumanAct.PUT_SCHEDULE)
def new_schedule_form(visit: Visit) -> Response:
    """Show the form, and what was typed into it as due times."""
    typed = tuple(visit.query.items())
    if not visit.query.get("id") and not visit.query.get("when"):
        return _form(visit, typed)
    try:
        outlook = _outlook(visit, typed)
    except ConfigurationError as error:
        return _form(visit, typed, wrong=str(error), status=400)
    return _form(visit, typed, outlook=outlook)


@PAGES.post("/jobs/{job:path}/schedule", needs=HumanAct.PUT_SCHEDULE)
def new_schedule(visit: Visit) -> Response:
    """Make the schedule, unless there is one of this id."""
    job, typed = str(visit.where["job"]), tuple(visit.form_list)
    form = dict(typed)
    try:
        params = visit.ask.read_params(job, typed_parameters(typed), to=HumanAct.PUT_SCHEDULE)
        made = visit.ask.schedules.put(
            form.get("id", "").strip(),
            job,
            read_edit(form).schedule,
            params=params,
            reason=reason_of(visit),
            is_new=True,
        )
    except StateChanged as error:
        return _form(visit, typed, wrong=str(error), status=409)
    except ConfigurationError as error:
        return _form(visit, typed, wrong=str(error), status=400)
    return RedirectResponse(visit.url(f"/schedules/{segment(made.id)}", did="made"), 303)


def _outlook(visit: Visit, typed: Typed) -> OutlookRecord:
    """Return the due times of what was typed, or refuse it, as the act would."""
    name = schedule_id(visit.query.get("id", "").strip())
    due = read_edit(visit.query).schedule
    visit.ask.read_params(str(visit.where["job"]), typed_parameters(typed), to=HumanAct.PUT_SCHEDULE)
    return OutlookRecord.of(due, now_us=microseconds(visit.ask.now()), count=_DUES, name=name)


def _form(
    visit: Visit, typed: Typed, *, outlook: OutlookRecord | None = None, wrong: str | None = None, status: int = 200
) -> Response:
    job = visit.ask.job(visit.where["job"])
    own = dict(typed)
    values: Mapping[str, Any] = {name.removeprefix(PREFIX): value for name, value in typed if name.startswith(PREFIX)}
    return render(
        visit,
        "new_schedule.html",
        status=status,
        now=visit.ask.now(),
        job=job,
        typed=own,
        fields=parameter_fields(job.signature, values),
        more=takes_more(job.signature),
        outlook=outlook,
        hidden=[(name, value) for name, value in typed if name in (*_OWN, MORE) or name.startswith(PREFIX)],
        command=_command(job.name, own, typed),
        wrong=wrong,
    )


def _command(job: str, own: Mapping[str, str], typed: Typed) -> str:
    try:
        params = typed_parameters(typed)
    except ConfigurationError:
        params = {}
    words = [word for name, value in params.items() for word in ("-p", f"{name}={value}")]
    zone, dst = own.get("zone") or "UTC", own.get("dst") or "auto"
    given = (own.get("id", ""), job, own.get("when", ""), "--tz", zone, "--dst", dst, *words)
    return shell_line("fencepost", "schedules", "put", *given, "--new", "--reason", "…")
