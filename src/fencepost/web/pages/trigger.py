"""Asking for runs: one, by a form made from the job's signature, or one per due time of the past (back-fill)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import RedirectResponse, Response

from fencepost.core.duration import typed_duration
from fencepost.core.rights import HumanAct
from fencepost.errors import AlreadyRequested, ConfigurationError, InvalidParameters, NotInLedger
from fencepost.web.finding import read_instant, whole
from fencepost.web.pages.run import reason_of
from fencepost.web.parameter_forms import parameter_fields, takes_more, typed_parameters
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes
from fencepost.web.visits import segment

if TYPE_CHECKING:
    from fencepost.web.visits import Visit

PAGES = PageRoutes()
_MANY = 100  # runs of a back-fill from which on their number has to be typed
_SHOWN = 200  # due times that are listed; how many there are is said in any case


@PAGES.get("/jobs/{job:path}/trigger", needs=HumanAct.TRIGGER)
def trigger_form(visit: Visit) -> Response:
    """Show the form; `like` is a run whose parameters fill it."""
    values: Mapping[str, Any] = {}
    if like := visit.query.get("like"):
        found = visit.ask.run(whole(like, what="like"))
        values = found.params if found.job == visit.where["job"] and isinstance(found.params, Mapping) else {}
    return _form(visit, values)


@PAGES.post("/jobs/{job:path}/trigger", needs=HumanAct.TRIGGER)
def trigger(visit: Visit) -> Response:
    """Ask for a run."""
    job, typed = str(visit.where["job"]), typed_parameters(visit.form_list)
    try:
        params = visit.ask.read_params(job, typed, to=HumanAct.TRIGGER)
        made = visit.ask.trigger(
            job,
            params,
            reason=reason_of(visit),
            key=visit.text("key", longest=100) or None,
            delay=typed_duration(visit.text("delay", longest=20), what="delay"),
            again=visit.form.get("again") == "on",
        )
    except AlreadyRequested as error:
        return _form(visit, typed, wrong=str(error), status=409, twin=error.run_id)
    except ConfigurationError as error:
        return _form(visit, typed, wrong=str(error), status=400)
    return RedirectResponse(visit.url(f"/runs/{made.run_id}", did="triggered", n=made.run_id), 303)


def _form(
    visit: Visit, values: Mapping[str, Any], *, wrong: str | None = None, status: int = 200, twin: int | None = None
) -> Response:
    job = visit.ask.job(visit.where["job"])
    fields = parameter_fields(job.signature, values)
    return render(
        visit,
        "trigger.html",
        status=status,
        now=visit.ask.now(),
        job=job,
        fields=fields,
        more=takes_more(job.signature),
        wrong=wrong,
        twin=twin,
        form=visit.form,
    )


@PAGES.get("/jobs/{job:path}/backfill", needs=HumanAct.BACKFILL)
def backfill_form(visit: Visit) -> Response:
    """Show what a back-fill would ask for; without a stretch of time, the form alone."""
    asked: Any = None
    wrong = None
    if visit.query.get("first") and visit.query.get("last"):
        try:
            first, last, schedule = _stretch(visit, visit.query)
            asked = visit.ask.would_backfill(visit.where["job"], first, last, schedule=schedule)
        except (ConfigurationError, NotInLedger) as error:
            wrong = str(error)
    return render(
        visit,
        "backfill.html",
        status=400 if wrong else 200,
        now=visit.ask.now(),
        job=visit.ask.job(visit.where["job"]),
        schedules=visit.ask.schedules.list(job=visit.where["job"], limit=100),
        asked=asked,
        shown=_SHOWN,
        many=_MANY,
        wrong=wrong,
    )


@PAGES.post("/jobs/{job:path}/backfill", needs=HumanAct.BACKFILL)
def backfill(visit: Visit) -> Response:
    """Ask for one run per due time, as it was shown before."""
    job = str(visit.where["job"])
    first, last, schedule = _stretch(visit, visit.form)
    would = len(visit.ask.would_backfill(job, first, last, schedule=schedule, to=HumanAct.BACKFILL))
    if visit.form.get("count") != str(would):
        raise InvalidParameters(
            f"it would be {would} runs now, and not {visit.form.get('count', '?')[:10]}: look at it again"
        )
    if would >= _MANY and visit.text("confirm") != str(would):
        raise InvalidParameters(f"to ask for so many runs at once, type their number, {would}")
    made = visit.ask.backfill(
        job, first, last, schedule=schedule, reason=reason_of(visit), again=visit.form.get("again") == "on"
    )
    return RedirectResponse(visit.url(f"/jobs/{segment(job)}", did="backfilled", n=made.new), 303)


def _stretch(visit: Visit, given: Mapping[str, str]) -> tuple[Any, Any, str | None]:
    now = visit.ask.now()
    first = read_instant(given.get("first", ""), now=now, what="from")
    last = read_instant(given.get("last", ""), now=now, what="to")
    return first, last, given.get("schedule") or None
