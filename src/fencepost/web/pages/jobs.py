"""Jobs, and one job: what it is, how it is run, and what became of its latest runs."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from starlette.responses import Response

from fencepost.core.rights import HumanAct
from fencepost.web.did import did_sentence
from fencepost.web.exporting import export
from fencepost.web.pages.runs import zones_of
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes

if TYPE_CHECKING:
    from fencepost.web.visits import Visit

PAGES = PageRoutes()
_COLUMNS = ("name", "type", "doc", "strategy", "generation", "seen_at", "nodes", "renamed_to")
_MOST_SHOWN = 500
_LATEST = 30


@PAGES.get("/jobs", needs=HumanAct.LOOK)
def jobs(visit: Visit) -> Response:
    """Show all jobs that any deploy has put on record."""
    wanted = visit.query.get("q", "").strip().lower()
    every = visit.ask.jobs()
    found = [each for each in every if wanted in each.name.lower()]
    schedules = visit.ask.schedules.list(limit=1000)
    due: dict[str, datetime] = {}
    for each in schedules:
        if each.next_due_at is not None and (each.job not in due or each.next_due_at < due[each.job]):
            due[each.job] = each.next_due_at
    return render(
        visit,
        "jobs.html",
        now=visit.ask.now(),
        jobs=found[:_MOST_SHOWN],
        total=len(found),
        wanted=wanted,
        due=due,
        paused=Counter(each.job for each in schedules if each.paused_at is not None),
        live=True,
    )


@PAGES.get("/jobs.{form}", needs=HumanAct.EXPORT)
def jobs_exported(visit: Visit) -> Response:
    """Give the jobs to programs."""
    return export(str(visit.where["form"]), "jobs", visit.ask.jobs(), _COLUMNS, is_cut=False)


@PAGES.get("/jobs/{job:path}", needs=HumanAct.LOOK)
def job(visit: Visit) -> Response:
    """Show one job."""
    ask = visit.ask
    found = ask.job(visit.where["job"])
    latest = ask.runs(job=found.name, limit=_LATEST)
    return render(
        visit,
        "job.html",
        now=ask.now(),
        did=did_sentence(visit),
        job=found,
        schedules=ask.schedules.list(job=found.name, limit=50),
        latest=latest,
        strip=[(each.state, f"run {each.id}: {each.state}") for each in reversed(latest)],
        failed=[each for each in latest if each.state == "dead"],
        zones_of=zones_of(visit),
        live=True,
    )
