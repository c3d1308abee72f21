"""One run: its attempts on one axis, parameters, result, what it waits for, its repetitions; and what can be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import PlainTextResponse, RedirectResponse, Response

from fencepost.app.records.versions import run_version
from fencepost.core.rights import HumanAct
from fencepost.core.states import TERMINAL
from fencepost.errors import InvalidParameters, NotInLedger, StateChanged
from fencepost.web.axis import attempt_chart
from fencepost.web.did import did_sentence
from fencepost.web.exporting import export
from fencepost.web.finding import whole
from fencepost.web.parameter_forms import other_parameters, parameter_fields, takes_more
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes
from fencepost.web.run_logs import ShownLog, shown_log

if TYPE_CHECKING:
    from fencepost.app.records import JobRecord, RunRecord
    from fencepost.web.visits import Visit

PAGES = PageRoutes()
_MOST_NOTED = 50  # the latest entries of the journal; the marks of the chart are taken from them


@PAGES.get("/runs/{run_id:int}", needs=HumanAct.LOOK)
def run(visit: Visit) -> Response:
    """Show one run."""
    ask = visit.ask
    found, now = ask.run(visit.where["run_id"]), ask.now()
    attempts, noted = ask.attempts(found.id), ask.journal(run_id=found.id, limit=_MOST_NOTED)
    is_over, job = found.state in TERMINAL, _job(visit, found)
    repetitions = ask.runs(retry_of=found.id, limit=20)
    return render(
        visit,
        "run.html",
        now=now,
        held=None if is_over else ask.held_because(),
        did=did_sentence(visit),
        run=found,
        own=_zone(visit, found),
        job=job,
        **_parameter_form(found, job),
        attempts=attempts,
        chart=attempt_chart(found, attempts, noted, now),
        trace=next((each.trace for each in reversed(attempts) if each.trace), None),
        waits=None if is_over else ask.waits(found.id),
        noted=noted,
        repetitions=repetitions,
        parts=ask.parts(found.id),
        log=_log(visit, found),
        is_over=is_over,
        is_held=found.waits_for == "person",
        live=not is_over or any(each.state not in TERMINAL for each in repetitions),
        every_s=2 if found.state == "running" else None,  # the log grows without a hint
    )


@PAGES.get("/runs/{run_id:int}.json", needs=HumanAct.EXPORT)
def run_exported(visit: Visit) -> Response:
    """Give one run to programs."""
    return export("json", f"run-{visit.where['run_id']}", [visit.ask.run(visit.where["run_id"])], (), is_cut=False)


@PAGES.get("/runs/{run_id:int}/log.txt", needs=HumanAct.EXPORT)
def log_exported(visit: Visit) -> Response:
    """Give the log of an attempt as a text."""
    found = visit.ask.run(visit.where["run_id"])
    log = _log(visit, found)
    headers = {"content-disposition": f'attachment; filename="run-{found.id}.log"'}
    return PlainTextResponse("" if log is None else log.text.encode("utf-8", "replace").decode(), headers=headers)


@PAGES.post("/runs/{run_id:int}/retry", needs=HumanAct.RETRY)
def retry(visit: Visit) -> Response:
    """Repeat a run that has ended."""
    found = unchanged(visit, HumanAct.RETRY)
    again = visit.form.get("again") == "on"
    made = visit.ask.retry(found.id, reason=reason_of(visit), again=again, expect=run_version(found))
    return done(visit, found.id, "retried", made)


@PAGES.post("/runs/{run_id:int}/cancel", needs=HumanAct.CANCEL)
def cancel(visit: Visit) -> Response:
    """Cancel a run, or have it stopped; what runs is stopped only if its number was typed."""
    found = unchanged(visit, HumanAct.CANCEL)
    if found.state == "running" and visit.text("confirm") != str(found.id):
        raise InvalidParameters(f"to stop what runs, type its number, {found.id}: a run that was stopped cannot go on")
    outcome = str(visit.ask.cancel(found.id, reason=reason_of(visit), expect=run_version(found)).value)
    words = {"cancelled": "cancelled", "requested": "stopping"}
    return done(visit, found.id, words.get(outcome, "too-late"))


@PAGES.post("/runs/{run_id:int}/release", needs=HumanAct.RELEASE_RUN)
def release(visit: Visit) -> Response:
    """Let a run go on that waits for a person."""
    found = unchanged(visit, HumanAct.RELEASE_RUN)
    visit.ask.release(found.id, reason=reason_of(visit), expect=run_version(found))
    return done(visit, found.id, "released")


def unchanged(visit: Visit, act: HumanAct) -> RunRecord:
    """Return the run of a form, unless its state or attempt is another one than when the form was drawn.

    The act itself has to compare once more, in its own transaction: pass the `run_version` of what this returns.
    """
    found = visit.ask.run(visit.where["run_id"], to=act)
    drawn = (visit.form.get("state", ""), visit.form.get("attempt", ""))
    if drawn != (found.state, str(found.attempts)):
        raise StateChanged(
            f"run {found.id} is {found.state} now, with {found.attempts} attempts; when the page was drawn it was "
            f"{drawn[0][:20] or '?'} with {drawn[1][:10] or '?'}. Nothing was done: look at it again"
        )
    return found


def reason_of(visit: Visit) -> str | None:
    """Return the reason that was given, if any."""
    return visit.text("reason") or None


def done(visit: Visit, run_id: int, did: str, n: int | None = None) -> Response:
    """Lead to the page of the run, which says what was done."""
    return RedirectResponse(visit.url(f"/runs/{run_id}", did=did, n=n), 303)


def _job(visit: Visit, found: RunRecord) -> JobRecord | None:
    try:
        return visit.ask.job(found.job)
    except NotInLedger:
        return None


def _parameter_form(found: RunRecord, job: JobRecord | None) -> dict[str, Any]:
    """Return what the form for a repetition with other parameters shows: those of the run, by the job's signature."""
    if job is None:
        return {"fields": [], "more": False, "others": ""}
    stored: Any = found.params  # somebody may have damaged it
    params = stored if isinstance(stored, Mapping) else {}
    fields, others = parameter_fields(job.signature, params), other_parameters(job.signature, params)
    return {"fields": fields, "more": takes_more(job.signature), "others": others}


def _zone(visit: Visit, found: RunRecord) -> str | None:
    if visit.zone.name != "own" or found.schedule is None:
        return None
    try:
        return str(visit.ask.schedules.get(found.schedule).spec.get("tz", "UTC"))
    except (NotInLedger, AttributeError):
        return None


def _log(visit: Visit, found: RunRecord) -> ShownLog | None:
    """Return what an attempt wrote: the one that the address names, else the latest. None before the first."""
    asked = visit.query.get("log", "")
    attempt = whole(asked, what="log") if asked else found.attempts
    return shown_log(visit.ask, found.id, min(attempt, 1_000_000)) if attempt else None
