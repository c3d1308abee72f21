"""Pauses of a queue, or of everything; and draining a node."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import Field

from fencepost.app.records import NodeRecord, PauseRecord, ResumedRecord
from fencepost.app.records.versions import pause_version
from fencepost.core.identity import LONGEST_NAME
from fencepost.core.rights import HumanAct
from fencepost.web.api.calls import ApiCall
from fencepost.web.api.fields import Duration, NeedsReason, Reasoned, Time, need_unit
from fencepost.web.api.replies import ApiReply, page
from fencepost.web.api.routes import ApiPage, ApiRoutes

ROUTES = ApiRoutes("pauses")
Queue = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, examples=["mail"])]
NodeId = Annotated[str, Path(min_length=1, max_length=200, description="The id of a node, or its name.")]


class PauseBody(NeedsReason):
    """What is paused: a queue, or everything if it is null. Why, and when it ends by itself."""

    queue: Queue | None
    until: Time | None = None
    duration: Duration | None = None


class ResumeBody(Reasoned):
    """What is resumed: the pause of a queue, or that of everything if it is null."""

    queue: Queue | None


@ROUTES.get("/pauses", needs=HumanAct.LOOK, shows=ApiPage(PauseRecord))
def list_(call: ApiCall) -> ApiReply:
    """Show the pauses that last, that of everything first."""
    return page(call.ask.pauses.list(), None)


@ROUTES.post("/pauses", needs=HumanAct.PAUSE_ALL, shows=PauseRecord)
def pause(call: ApiCall, body: PauseBody) -> ApiReply:
    """Let no node claim runs of a queue, or of any queue. What runs goes on.

    `If-Match` has the `version` of the pause that was seen; `If-None-Match: *` pauses only what is not paused.
    """
    need_unit(body.duration, "duration")
    expect = pause_version(None) if call.is_new else call.expect
    return call.act(
        lambda: call.ask.pauses.pause(
            body.queue, reason=body.reason, until=body.until, duration=body.duration, expect=expect
        ),
        lambda done: done,
        within=PauseRecord.of,
        only_now=lambda done: {"ignored_by": list(done.ignored_by)},
    )


@ROUTES.post("/pauses/resume", needs=HumanAct.RESUME_ALL, shows=ResumedRecord)
def resume(call: ApiCall, body: ResumeBody) -> ApiReply:
    """End the pause of a queue, or that of everything."""
    return call.act(
        lambda: call.ask.pauses.resume(body.queue, reason=body.reason, expect=call.expect), lambda done: done
    )


@ROUTES.post("/nodes/{node}/drain", needs=HumanAct.DRAIN_NODE, shows=NodeRecord)
def drain(call: ApiCall, node: NodeId, body: NeedsReason) -> ApiReply:
    """Ask a living node to claim nothing more, to finish its runs, and to leave."""
    return call.act(lambda: call.ask.drain_node(node, reason=body.reason), lambda done: done)
