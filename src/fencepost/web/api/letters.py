"""Dead letters and bulk work. Both need the code of the jobs: a server that was started with the application."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from fencepost.app.records import BulkAgainRecord, BulkForgottenRecord, BulkRecord, LetterRecord
from fencepost.app.records.results import DoneRecord, TriggeredRecord
from fencepost.core.rights import HumanAct
from fencepost.web.api.calls import ApiCall
from fencepost.web.api.fields import LARGEST_ID, Edge, Id, JobFilter, Limit, Name, NeedsReason, RunId
from fencepost.web.api.replies import ApiReply, reply
from fencepost.web.api.routes import ApiOr, ApiPage, ApiRoutes

ROUTES = ApiRoutes("letters")
Step = Annotated[str, Query(max_length=160)]


class Chosen(NeedsReason):
    """Letters of a job: those with these ids, or with `all_new` all that are new."""

    job: Name
    ids: Annotated[list[Id], Field(max_length=1_000)] = Field(default_factory=list)
    all_new: bool = False
    step: Annotated[str, Field(max_length=160)] = ""


class ReplayBody(Chosen):
    """With `again`, letters are replayed even while a replay of the same has not ended."""

    again: bool = False


@ROUTES.get("/letters", needs=HumanAct.LOOK, shows=ApiPage(LetterRecord))
def list_(
    call: ApiCall,
    *,
    job: JobFilter = None,
    state: Annotated[str | None, Query(max_length=20)] = None,
    step: Step = "",
    before: Edge = None,
    limit: Limit = 100,
) -> ApiReply:
    """Show dead letters, newest first in each database. Ids count within a database: go on with one job and step."""
    found = call.ask.letters.list(job, state=state, step=step, before_id=before, limit=limit)
    return call.page(found, limit, **({"before": found[-1].id} if found else {}))


@ROUTES.get("/letters/{letter_id}", needs=HumanAct.LOOK, shows=LetterRecord)
def show(
    call: ApiCall, letter_id: Annotated[int, Path(ge=1, le=LARGEST_ID)], job: JobFilter = None, step: Step = ""
) -> ApiReply:
    """Show one dead letter, with its item."""
    return reply(call.ask.letters.show(letter_id, job=job, step=step))


@ROUTES.post("/letters/replay", needs=HumanAct.REPLAY_LETTERS, shows=ApiOr(TriggeredRecord))
def replay(call: ApiCall, body: ReplayBody) -> ApiReply:
    """Process letters again, in a run of their own. `run_id` is 0 if there is nothing to replay."""
    given = body.model_dump(exclude={"job", "ids"})
    return call.act(
        lambda: call.ask.letters.replay(body.job, body.ids, **given),
        lambda made: TriggeredRecord(0 if made is None else made.run_id, body.job, made is not None and made.is_new),
        job=body.job,
    )


@ROUTES.post("/letters/drop", needs=HumanAct.DROP_LETTERS, shows=DoneRecord)
def drop(call: ApiCall, body: Chosen) -> ApiReply:
    """Mark letters as dropped. They stay on record."""
    given = body.model_dump(exclude={"job", "ids"})
    return call.act(
        lambda: call.ask.letters.drop(body.job, body.ids, **given),
        lambda count: DoneRecord(done=True, count=count),
        job=body.job,
    )


@ROUTES.get("/bulk/{run_id}", needs=HumanAct.LOOK, shows=BulkRecord)
def bulk(call: ApiCall, run_id: RunId) -> ApiReply:
    """Show the steps and partitions of what a run of a bulk job stands for."""
    return reply(call.ask.bulk.show(run_id))


@ROUTES.post("/bulk/{run_id}/again", needs=HumanAct.REPEAT_BULK, shows=BulkAgainRecord)
def bulk_again(call: ApiCall, run_id: RunId, body: NeedsReason) -> ApiReply:
    """Do once more what is complete, from the beginning."""
    return call.act(lambda: call.ask.bulk.again(run_id, reason=body.reason), lambda done: done)


@ROUTES.post("/bulk/{run_id}/forget", needs=HumanAct.FORGET_BULK, shows=BulkForgottenRecord)
def bulk_forget(call: ApiCall, run_id: RunId, body: NeedsReason) -> ApiReply:
    """Forget how far an unfinished job is, so that its next run begins anew."""
    return call.act(lambda: call.ask.bulk.forget(run_id, reason=body.reason), lambda done: done)
