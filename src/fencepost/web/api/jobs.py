"""Jobs, what became of their due times, nodes, the leader, the journal, and the ledger itself.

Names of jobs may contain slashes. They are the end of a path, or a parameter, and never in the middle of a path.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from fencepost.app.records import (
    FiguresRecord,
    JobRecord,
    JournalRecord,
    LockRecord,
    NodeRecord,
    RenamedJobRecord,
    WhyRecord,
)
from fencepost.app.records.results import ForgottenRecord, LedgerStateRecord
from fencepost.core.rights import HumanAct
from fencepost.web.api.calls import ApiCall
from fencepost.web.api.fields import (
    LARGEST_ID,
    Edge,
    JobFilter,
    Limit,
    Name,
    Reasoned,
    ReasonQuery,
    TextFilter,
    TimeFilter,
)
from fencepost.web.api.replies import ApiReply, page, reply
from fencepost.web.api.routes import ApiOr, ApiPage, ApiRoutes

ROUTES = ApiRoutes("jobs")
MOST_FIGURES = 100  # jobs on a page: each has up to 840 hours
JobName = Annotated[str, Path(min_length=1, max_length=160, description="The name of a job.", examples=["settle"])]


class RenameBody(Reasoned):
    """The name of a job, and the one that it gets."""

    old: Name
    new: Name
    into_existing: bool = Field(
        default=False,
        description="Let it join the job that has this name already. Without it, that is refused where the other job "
        "has runs, schedules or permissions.",
    )


@ROUTES.get("/ledger", needs=HumanAct.LOOK, shows=LedgerStateRecord)
def ledger(call: ApiCall) -> ApiReply:
    """Show the time by the ledger's clock, and who asks."""
    return reply(LedgerStateRecord(call.ask.now(), call.ask.held_because(), call.ask.principal))


@ROUTES.get("/jobs", needs=HumanAct.LOOK, shows=ApiPage(JobRecord))
def list_(call: ApiCall, after: Annotated[str, Query(max_length=160)] = "", limit: Limit = 100) -> ApiReply:
    """Show the jobs that nodes have registered, by name."""
    found = [each for each in call.ask.jobs() if each.name > after][:limit]
    return call.page(found, limit, **({"after": found[-1].name} if found else {}))


@ROUTES.get("/jobs/{name:path}", needs=HumanAct.LOOK, shows=JobRecord)
def show(call: ApiCall, name: JobName) -> ApiReply:
    """Show one job."""
    return reply(call.ask.job(name))


@ROUTES.post("/jobs/rename", needs=HumanAct.RENAME_JOB, shows=RenamedJobRecord)
def rename(call: ApiCall, body: RenameBody) -> ApiReply:
    """Give a job another name for good. For one with effects in other databases, use the command line."""
    return call.act(
        lambda: call.ask.rename_job(body.old, body.new, reason=body.reason, into_existing=body.into_existing),
        lambda done: done,
    )


@ROUTES.delete("/jobs/{name:path}", needs=HumanAct.FORGET_JOB, shows=ForgottenRecord)
def forget(call: ApiCall, name: JobName, reason: ReasonQuery = None) -> ApiReply:
    """Forget a job that no living node has: delete its schedules, cancel its runs that have not ended."""
    return call.act(
        lambda: call.ask.forget_job(name, reason=reason),
        lambda gone: ForgottenRecord(name, gone.schedules, gone.runs),
        job=name,
    )


@ROUTES.get("/figures", needs=HumanAct.LOOK, shows=ApiPage(FiguresRecord))
def figures(
    call: ApiCall,
    *,
    job: JobFilter = None,
    since: TimeFilter = None,
    after: Annotated[str, Query(max_length=160)] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_FIGURES, description="How many jobs at most.")] = MOST_FIGURES,
) -> ApiReply:
    """Show how the attempts of jobs ended and how long they took, hour by hour; by default since a day ago."""
    found = call.ask.figures(job, since=since, after=after, limit=limit)
    return call.page(found, limit if job is None else len(found) + 1, **({"after": found[-1].job} if found else {}))


@ROUTES.get("/why", needs=HumanAct.LOOK, shows=ApiPage(WhyRecord))
def why(call: ApiCall, job: Annotated[str, Query(min_length=1, max_length=160)], at: TimeFilter = None) -> ApiReply:
    """Show what became of a due time of a job, or of a schedule; by default of the latest."""
    return page(call.ask.why(job, at), None)


@ROUTES.get("/nodes", needs=HumanAct.LOOK, shows=ApiPage(NodeRecord))
def nodes(call: ApiCall, living: bool = False, limit: Limit = 100) -> ApiReply:
    """Show nodes, the living first; with `living`, these alone."""
    return page(call.ask.nodes(living=living, limit=limit), None)


@ROUTES.get("/leader", needs=HumanAct.LOOK, shows=ApiOr(LockRecord))
def leader(call: ApiCall) -> ApiReply:
    """Show the lock of the node that leads, or led last; null if no node was a candidate."""
    return reply(call.ask.leader())


@ROUTES.get("/journal", needs=HumanAct.LOOK, shows=ApiPage(JournalRecord))
def journal(
    call: ApiCall,
    *,
    job: JobFilter = None,
    run_id: Annotated[int | None, Query(ge=1, le=LARGEST_ID)] = None,
    what: TextFilter = None,
    since: TimeFilter = None,
    before: Edge = None,
    limit: Limit = 100,
) -> ApiReply:
    """Show lines of the journal, newest first."""
    found = call.ask.journal(job=job, run_id=run_id, what=what, since=since, before_id=before, limit=limit)
    return call.page(found, limit, **({"before": found[-1].id} if found else {}))
