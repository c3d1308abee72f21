"""Jobs, and one job: what it is, how it is run, and what became of its latest runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from starlette.responses import Response

from fencepost.core.rights import HumanAct
from fencepost.web.did import did_sentence
from fencepost.web.exporting import export
from fencepost.web.figures import STRETCHES, WEEK, JobFigures, bars_of, in_words, job_figures
from fencepost.web.pages.runs import zones_of
from fencepost.web.policy_words import policy_words
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes
from fencepost.web.svg import titled_stacks

if TYPE_CHECKING:
    from fencepost.app.records import JobRecord, ScheduleRecord
    from fencepost.web.visits import Visit

PAGES = PageRoutes()
_COLUMNS = ("name", "type", "doc", "strategy", "generation", "seen_at", "nodes", "renamed_to")
_MOST_SHOWN = 40  # each has the figures of a week: up to 168 rows
_MOST_SCHEDULES = 10_000  # of the jobs shown; if there are more, the first ones by id tell what is due and paused
_LATEST = 30  # runs; a link leads to all of them
_USUAL_STRETCH = "7d"
_FIGURES_EVERY_S = 10  # nodes write them as often


@PAGES.get("/jobs", needs=HumanAct.LOOK)
def jobs(visit: Visit) -> Response:
    """Show the jobs that any deploy has put on record, a page of them, with the figures of a week."""
    wanted, after = visit.query.get("q", "").strip().lower(), visit.query.get("after", "")
    found = [each for each in visit.ask.jobs() if wanted in each.name.lower()]
    shown = [each for each in found if each.name > after][:_MOST_SHOWN]
    schedules = _schedules_of(visit, shown)
    now = visit.ask.now()
    due: dict[str, datetime] = {}
    for each in schedules:
        if each.next_due_at is not None and (each.job not in due or each.next_due_at < due[each.job]):
            due[each.job] = each.next_due_at
    return render(
        visit,
        "jobs.html",
        now=now,
        jobs=shown,
        total=len(found),
        wanted=wanted,
        after=after,
        has_more=bool(shown) and shown[-1].name != found[-1].name,
        figures=_figures_of(visit, shown, now),
        since=now - timedelta(hours=WEEK),
        due=due,
        paused=Counter(each.job for each in schedules if each.paused_at is not None),
        live=True,
        calm=True,  # what it shows changes when nodes write their figures, and not with every run
        every_s=_FIGURES_EVERY_S,
    )


def _schedules_of(visit: Visit, jobs: Sequence[JobRecord]) -> list[ScheduleRecord]:
    """Return the schedules of the jobs that are shown, however many there are of other jobs."""
    names = [each.name for each in jobs]
    found: list[ScheduleRecord] = []
    while len(found) < _MOST_SCHEDULES:
        page = visit.ask.schedules.list(jobs=names, after_id=found[-1].id if found else "")
        if not page:
            break
        found += page
    return found


def _figures_of(visit: Visit, jobs: Sequence[JobRecord], now: datetime) -> dict[str, JobFigures]:
    """Return the figures of these jobs, by name: all of them are one question."""
    if not jobs:
        return {}
    policies = {each.name: each.policy for each in jobs}
    found = visit.ask.figures(jobs=policies, since=now - timedelta(hours=WEEK), limit=len(jobs))
    return {
        each.job: job_figures(
            each, timeout_s=_seconds(policies[each.job], "timeout"), sla_s=_seconds(policies[each.job], "sla")
        )
        for each in found
    }


def _seconds(policy: object, name: str) -> float | None:
    value = policy.get(name) if isinstance(policy, Mapping) else None
    return value if isinstance(value, int | float) and value > 0 else None


@PAGES.get("/jobs.{form}", needs=HumanAct.EXPORT)
def jobs_exported(visit: Visit) -> Response:
    """Give the jobs to programs."""
    return export(str(visit.where["form"]), "jobs", visit.ask.jobs(), _COLUMNS, is_cut=False)


@PAGES.get("/jobs/{job:path}", needs=HumanAct.LOOK)
def job(visit: Visit) -> Response:
    """Show one job."""
    ask = visit.ask
    found, now = ask.job(visit.where["job"]), ask.now()
    latest = ask.runs(job=found.name, limit=_LATEST)
    chosen = visit.query.get("figures", "")
    stretch = chosen if chosen in STRETCHES else _USUAL_STRETCH
    hours, width = STRETCHES[stretch]
    [figures] = ask.figures(found.name, since=now - timedelta(hours=hours - 1))
    bars = bars_of(figures.hours, until=figures.until_at, hours=hours, width=width)
    return render(
        visit,
        "job.html",
        now=now,
        did=did_sentence(visit),
        job=found,
        schedules=ask.schedules.list(job=found.name, limit=50),
        latest=latest,
        strip=[(each.state, f"run {each.id}: {each.state}") for each in reversed(latest)],
        failed=[each for each in latest if each.state == "dead"],
        zones_of=zones_of(visit, latest),
        figures=figures,
        since=now - timedelta(hours=hours),
        summary=in_words(figures.outcomes),
        stretch=stretch,
        stretches=list(STRETCHES),
        chart=titled_stacks(
            [each.stack for each in bars], title=f"{found.name}, {stretch}: {in_words(figures.outcomes)}"
        ),
        timeout_s=_seconds(found.policy, "timeout"),
        sla_s=_seconds(found.policy, "sla"),
        words=policy_words(found.policy),
        live=True,
    )
