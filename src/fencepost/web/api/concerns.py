"""What needs a person now, and acknowledging it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fencepost.app.records.concerns import ChangeRecord, ConcernRecord
from fencepost.app.records.results import DoneRecord
from fencepost.core.rights import HumanAct
from fencepost.web.api.calls import ApiCall
from fencepost.web.api.fields import Duration, Reasoned, Text, Time, need_unit
from fencepost.web.api.replies import ApiReply, page
from fencepost.web.api.routes import ApiPage, ApiRoutes

ROUTES = ApiRoutes("now")
What = Annotated[str, Field(min_length=1, max_length=40, examples=["given-up"])]
ConcernId = Annotated[str, Field(min_length=1, max_length=160, examples=["settle@1774747800000000.42"])]


class Named(Reasoned):
    """The `what` and `id` of something that `/now` shows."""

    what: What
    id: ConcernId


class Acknowledge(Named):
    """What somebody knows of, with a note in `reason`; until a time or for a duration, if one is given."""

    reason: Text | None = Field(default=None, examples=["the bank is down, ann is on it"])
    until: Time | None = None
    duration: Duration | None = None


@ROUTES.get("/now", needs=HumanAct.LOOK, shows=ApiPage(ConcernRecord))
def list_(call: ApiCall) -> ApiReply:
    """Show what needs a person, worst first, and after it what a person has acknowledged."""
    return page(call.ask.concerns.list(), None)


@ROUTES.get("/now/changes", needs=HumanAct.LOOK, shows=ApiPage(ChangeRecord))
def changes(call: ApiCall) -> ApiReply:
    """Show what changed in the last 24 hours, newest first: deploys, schedules, acts of people."""
    return page(call.ask.concerns.changes(), None)


@ROUTES.post("/now/acknowledge", needs=HumanAct.ACKNOWLEDGE, shows=DoneRecord)
def acknowledge(call: ApiCall, body: Acknowledge) -> ApiReply:
    """Say that you know of something. It needs a person again when its time is over, or when it happens anew."""
    need_unit(body.duration, "duration")
    ends = {"until": body.until, "duration": body.duration}
    return call.act(
        lambda: call.ask.concerns.acknowledge(body.what, body.id, note=body.reason, **ends),
        lambda _: DoneRecord(done=True),
        within=lambda _: DoneRecord(done=True),
    )


@ROUTES.post("/now/unacknowledge", needs=HumanAct.ACKNOWLEDGE, shows=DoneRecord)
def unacknowledge(call: ApiCall, body: Named) -> ApiReply:
    """Withdraw an acknowledgement, of whoever it is."""
    return call.act(
        lambda: call.ask.concerns.unacknowledge(body.what, body.id, reason=body.reason),
        lambda _: DoneRecord(done=True),
        within=lambda _: DoneRecord(done=True),
    )
