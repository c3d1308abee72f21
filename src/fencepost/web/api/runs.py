"""Runs: look at them, trigger, retry, cancel, release, reprocess, back-fill."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from fencepost.app.records import AttemptRecord, DueRecord, LogRecord, PartRecord, RunRecord, RunsFound
from fencepost.app.records.results import (
    BackfilledRecord,
    CancelledRecord,
    DoneRecord,
    RepeatedRecord,
    RetriedRecord,
    SearchRecord,
    TriggeredRecord,
    WaitsRecord,
)
from fencepost.app.records.versions import run_version
from fencepost.core.rights import HumanAct
from fencepost.errors import InvalidParameters
from fencepost.web.api.calls import ApiCall
from fencepost.web.api.fields import (
    LARGEST_ID,
    MOST_ON_A_PAGE,
    Body,
    Duration,
    Edge,
    JobFilter,
    Limit,
    Name,
    Reasoned,
    RunId,
    Text,
    TextFilter,
    Time,
    TimeFilter,
    need_unit,
)
from fencepost.web.api.replies import ApiReply, page, reply
from fencepost.web.api.routes import ApiPage, ApiRoutes

ROUTES = ApiRoutes("runs")
_MOST_BACKFILLED = 10_000  # runs of one request: as many as without a limit of the caller's own (`MOST_BACKFILLED`)
Params = Annotated[dict[str, Any], Field(max_length=200)]  # as many as a form has fields (`MOST_FIELDS`)


class Trigger(Body):
    """A run that is requested. `params` by their names; `at` a time or `delay` a duration, not both."""

    job: Name = Field(examples=["settle"])
    params: Params = Field(default_factory=dict, examples=[{"account": 7}])
    reason: Text | None = Field(default=None, examples=["the auditor asked"])
    at: Time | None = None
    delay: Duration | None = None
    key: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    again: bool = False


class RetryBody(Reasoned):
    """With `again`, a run is repeated even while another repetition of it has not ended.

    `params` are the parameters of the new run, all of them, by their names. Without it, they are those of the run.
    """

    again: bool = False
    params: Params | None = Field(default=None, examples=[{"account": 8}])


class Reprocess(Reasoned):
    """Which runs that were given up are repeated: after an id, of a job, made since a time."""

    job: Name | None = None
    since: Time | None = None
    until: Time | None = None
    after: Annotated[int, Field(ge=0, le=LARGEST_ID)] = 0
    limit: Annotated[int, Field(ge=1, le=MOST_ON_A_PAGE)] = 100


class Backfill(Reasoned):
    """The due times from `first` to `last`, both included,, of a job's schedules or of one."""

    job: Name = Field(examples=["settle"])
    first: Time
    last: Time
    schedule: Name | None = None
    params: Params | None = None
    key: Annotated[str, Field(min_length=1, max_length=60)] | None = None
    limit: Annotated[int, Field(ge=1, le=_MOST_BACKFILLED)] = _MOST_BACKFILLED
    again: bool = False


# As many as a search takes (`MOST_PARAMETERS`), with room for a name and `LONGEST_VALUE` characters.
Parameters = Annotated[
    list[Annotated[str, Field(max_length=1_300)]],
    Query(
        max_length=10, description="A parameter that runs have: its name, a colon, its value.", examples=["customer:7"]
    ),
]


@ROUTES.get("/runs", needs=HumanAct.LOOK, shows=ApiPage(RunRecord, search=SearchRecord))
def list_(
    call: ApiCall,
    *,
    job: JobFilter = None,
    state: Annotated[list[str], Query(max_length=20)] = [],  # noqa: B006 - FastAPI copies it
    waits_for: TextFilter = None,
    schedule: TextFilter = None,
    queue: TextFilter = None,
    node: TextFilter = None,
    requested_by: TextFilter = None,
    retry_of: Annotated[int | None, Query(ge=1, le=LARGEST_ID)] = None,
    exclusive_key: Annotated[str | None, Query(max_length=200)] = None,
    since: TimeFilter = None,
    until: TimeFilter = None,
    id: Annotated[list[int], Query(max_length=200)] = [],  # noqa: B006
    param: Parameters = [],  # noqa: B006
    before: Edge = None,
    after: Edge = None,
    limit: Limit = 100,
) -> ApiReply:
    """Show runs, newest first; with `after`, those after it, oldest first.

    Where no index leads to all that is asked for, the search is bounded: `search` says how far it came, and `next`
    goes on. So a page may have few items, or none, and a next page all the same.
    """
    found = call.ask.find_runs(
        job=job,
        states=state,
        waits_for=waits_for,
        schedule=schedule,
        queue=queue,
        node=node,
        requested_by=requested_by,
        retry_of=retry_of,
        exclusive_key=exclusive_key,
        since=since,
        until=until,
        ids=id or None,
        params=_parameters(param),
        before_id=before,
        after_id=after,
        limit=limit,
    )
    edges = {"before": found.next_before, "after": found.next_after}
    edge = {name: value for name, value in edges.items() if value is not None}
    return page(found.runs, call.link(**edge) if edge else None, search=_search(found))


def _parameters(given: list[str]) -> dict[str, str]:
    pairs = [each.partition(":") for each in given]
    if any(not colon for _, colon, _ in pairs) or len({name for name, _, _ in pairs}) < len(pairs):
        raise InvalidParameters("param is a name, a colon and a value, as in param=customer:7, and each name once")
    return {name: value for name, _, value in pairs}


def _search(found: RunsFound) -> SearchRecord | None:
    back_to = found.looked_back_to
    return None if back_to is None else SearchRecord(found.looked_through, back_to, found.looked_back_at)


@ROUTES.get("/runs/{run_id}", needs=HumanAct.LOOK, shows=RunRecord)
def show(call: ApiCall, run_id: RunId) -> ApiReply:
    """Show one run. Its ETag changes when its state, its attempt or what it waits for does."""
    found = call.ask.run(run_id)
    return reply(found, etag=run_version(found))


@ROUTES.get("/runs/{run_id}/attempts", needs=HumanAct.LOOK, shows=ApiPage(AttemptRecord))
def attempts(call: ApiCall, run_id: RunId) -> ApiReply:
    """Show the attempts of a run that have ended, in their order."""
    return page(call.ask.attempts(run_id), None)


@ROUTES.get("/runs/{run_id}/log", needs=HumanAct.LOOK, shows=ApiPage(LogRecord))
def log(
    call: ApiCall,
    run_id: RunId,
    attempt: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    after: Annotated[str | None, Query(max_length=60, description="The `position` of the last record seen.")] = None,
    # Fewer than of other lists: a record may have 32 kB of text.
    limit: Annotated[int, Query(ge=1, le=100, description="How many at most.")] = 100,
) -> ApiReply:
    """Show what a run wrote, in order: of one attempt or of all. Ask again after the last position for more."""
    found = call.ask.log(run_id, attempt=attempt, after=after, limit=limit)
    return call.page(found, limit, **({"after": found[-1].position} if found else {}))


@ROUTES.get("/runs/{run_id}/parts", needs=HumanAct.LOOK, shows=ApiPage(PartRecord))
def parts(call: ApiCall, run_id: RunId) -> ApiReply:
    """Show the runs that a run of a bulk job has made for its partitions."""
    return page(call.ask.parts(run_id), None)


@ROUTES.get("/runs/{run_id}/waits", needs=HumanAct.LOOK, shows=WaitsRecord)
def waits(call: ApiCall, run_id: RunId) -> ApiReply:
    """Show what a run waits for, in a sentence."""
    return reply(WaitsRecord(run_id, call.ask.waits(run_id)))


@ROUTES.post("/runs", needs=HumanAct.TRIGGER, shows=TriggeredRecord, status=201)
def trigger(call: ApiCall, body: Trigger) -> ApiReply:
    """Request a run. A run that does the same and has not ended is a conflict, unless `again` is set."""

    def said(made: Any) -> TriggeredRecord:
        return TriggeredRecord(made.run_id, body.job, made.is_new)

    def paused(made: Any) -> dict[str, Any]:
        pauses = call.ask.pauses.list()
        queue = call.ask.run(made.run_id).queue if pauses else ""
        return {"paused": next((each.sentence for each in pauses if each.concerns(queue)), None)}

    need_unit(body.delay, "delay")
    given = body.model_dump(exclude={"job", "params"})
    return call.act(
        lambda: call.ask.trigger(body.job, body.params, **given),
        said,
        within=said,
        job=body.job,
        status=201,
        only_now=paused,
    )


@ROUTES.post("/runs/{run_id}/retry", needs=HumanAct.RETRY, shows=RetriedRecord, status=201)
def retry(call: ApiCall, run_id: RunId, body: RetryBody) -> ApiReply:
    """Repeat a run that has ended, with the same window, and the same or other parameters."""

    def said(made: int) -> RetriedRecord:
        return RetriedRecord(made, run_id, is_new=True)

    given = body.model_dump()
    return call.act(
        lambda: call.ask.retry(run_id, expect=call.expect, **given),
        said,
        within=said,
        status=201,
    )


@ROUTES.post("/runs/{run_id}/cancel", needs=HumanAct.CANCEL, shows=CancelledRecord)
def cancel(call: ApiCall, run_id: RunId, body: Reasoned) -> ApiReply:
    """Cancel a run that has not started, or have the one that runs stopped."""
    return call.act(
        lambda: call.ask.cancel(run_id, reason=body.reason, expect=call.expect),
        lambda outcome: CancelledRecord(run_id, str(outcome)),
        within=lambda result: CancelledRecord(run_id, str(result[0])),
    )


@ROUTES.post("/runs/{run_id}/release", needs=HumanAct.RELEASE_RUN, shows=DoneRecord)
def release(call: ApiCall, run_id: RunId, body: Reasoned) -> ApiReply:
    """Let a run go on that waits for a person."""
    return call.act(
        lambda: call.ask.release(run_id, reason=body.reason, expect=call.expect),
        lambda _: DoneRecord(done=True),
        within=lambda _: DoneRecord(done=True),
    )


@ROUTES.post("/reprocess", needs=HumanAct.REPROCESS, shows=RepeatedRecord)
def reprocess(call: ApiCall, body: Reprocess) -> ApiReply:
    """Repeat runs that were given up, each once. To go on, send the last `retry_of` as `after`."""

    def said(made: Any) -> RepeatedRecord:
        return RepeatedRecord(tuple(RetriedRecord(each.run_id, each.old_id, each.is_new) for each in made))

    given = body.model_dump(exclude={"after"})
    return call.act(lambda: call.ask.reprocess(after_id=body.after, **given), said, job=body.job)


@ROUTES.post("/backfills", needs=HumanAct.BACKFILL, shows=BackfilledRecord, status=201)
def backfill(call: ApiCall, body: Backfill) -> ApiReply:
    """Request a run for each due time of a past period. `/backfills/dry-run` shows them without asking for any."""
    given = body.model_dump(exclude={"job", "first", "last"})
    return call.act(
        lambda: call.ask.backfill(body.job, body.first, body.last, **given),
        lambda made: BackfilledRecord(body.job, made.key, made.asked, made.new),
        job=body.job,
        status=201,
    )


@ROUTES.ask("/backfills/dry-run", needs=HumanAct.LOOK, shows=ApiPage(DueRecord))
def backfill_dry_run(call: ApiCall, body: Backfill) -> ApiReply:
    """Show the due times that a back-fill would ask for. Nothing is done."""
    given = body.model_dump(include={"schedule", "params", "limit"})
    return page(call.ask.would_backfill(body.job, body.first, body.last, **given), None)
