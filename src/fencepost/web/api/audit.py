"""The audit, and what a person decides about a ledger that was restored or copied."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from fencepost.app.records import DecisionRecord, StandingRecord
from fencepost.app.records.audit import AnchorRecord, AuditRecord, VerifiedRecord
from fencepost.app.records.results import ChainLineRecord, DoneRecord
from fencepost.core.rights import HumanAct
from fencepost.errors import InvalidTick
from fencepost.web.api.calls import ApiCall
from fencepost.web.api.fields import (
    LARGEST_ID,
    Body,
    Edge,
    JobFilter,
    Limit,
    NeedsReason,
    TextFilter,
    Time,
)
from fencepost.web.api.replies import ApiReply, reply
from fencepost.web.api.routes import ApiPage, ApiRoutes

ROUTES = ApiRoutes("audit")
_LONGEST_GAP = 10**12  # ids have 64 bits: enough for nine million gaps of this size


class Anchor(Body):
    """The end of the chain at an earlier time, as ``fencepost audit anchor`` prints it."""

    ledger: Annotated[str, Field(max_length=100)]
    n: Annotated[int, Field(ge=0, le=LARGEST_ID)]
    hash: Annotated[str, Field(max_length=64)]
    at: Time

    def record(self) -> AnchorRecord:
        """Return it as a record."""
        try:
            return AnchorRecord(self.ledger, self.n, self.hash, datetime.fromisoformat(self.at))
        except ValueError:
            raise InvalidTick(f"at {self.at!r} is not a valid time") from None


class Verify(Body):
    """Anchors that the chain is compared with."""

    anchors: Annotated[list[Anchor], Field(max_length=1_000)] = Field(default_factory=list)


class Prune(NeedsReason):
    """Entries from before a time are removed."""

    before: Time


class Accept(NeedsReason):
    """What becomes of runs that had not ended in the dump, and how many ids are left out."""

    pending: Literal["hold", "run", "cancel"] = "hold"
    id_gap: Annotated[int, Field(ge=1, le=_LONGEST_GAP)] = 1_000_000
    unnoticed: bool = False


class AsCopy(NeedsReason):
    """`unnoticed`: decide although no difference was noticed."""

    unnoticed: bool = False


@ROUTES.get("/audit", needs=HumanAct.READ_AUDIT, shows=ApiPage(AuditRecord))
def list_(
    call: ApiCall,
    *,
    job: JobFilter = None,
    who: TextFilter = None,
    act: TextFilter = None,
    run_id: Annotated[int | None, Query(ge=1, le=LARGEST_ID)] = None,
    before: Edge = None,
    limit: Limit = 100,
) -> ApiReply:
    """Show what people did, newest first."""
    found = call.ask.audit.entries(job=job, who=who, act=act, run_id=run_id, before_n=before, limit=limit)
    return call.page(found, limit, **({"before": found[-1].n} if found else {}))


@ROUTES.get("/audit/anchor", needs=HumanAct.READ_AUDIT, shows=AnchorRecord)
def anchor(call: ApiCall) -> ApiReply:
    """Show the end of the chain, to be kept outside of the database."""
    return reply(call.ask.audit.anchor())


@ROUTES.get("/audit/export", needs=HumanAct.READ_AUDIT, shows=ApiPage(ChainLineRecord))
def export(call: ApiCall, after: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0, limit: Limit = 500) -> ApiReply:
    """Show the chain as it is hashed, oldest entry first."""
    lines = itertools.islice(call.ask.audit.export(after_n=after), limit)
    found = [ChainLineRecord(**json.loads(line)) for line in lines]
    return call.page(found, limit, **({"after": found[-1].n} if found else {}))


@ROUTES.ask("/audit/verify", needs=HumanAct.READ_AUDIT, shows=VerifiedRecord)
def verify(call: ApiCall, body: Verify) -> ApiReply:
    """Compare the whole chain with itself and with anchors. This takes as long as the chain is."""
    return reply(call.ask.audit.verify([each.record() for each in body.anchors]))


@ROUTES.post("/audit/prune", needs=HumanAct.PRUNE_AUDIT, shows=DoneRecord)
def prune(call: ApiCall, body: Prune) -> ApiReply:
    """Remove the beginning of the chain. The rest still verifies."""
    return call.act(
        lambda: call.ask.audit.prune(before=body.before, reason=body.reason),
        lambda count: DoneRecord(done=True, count=count),
    )


@ROUTES.get("/restored", needs=HumanAct.LOOK, shows=StandingRecord)
def restored(call: ApiCall) -> ApiReply:
    """Show whether the ledger was restored or copied."""
    return reply(call.ask.restored.standing())


@ROUTES.post("/restored/accept", needs=HumanAct.ACCEPT_LEDGER, shows=DecisionRecord)
def accept(call: ApiCall, body: Accept) -> ApiReply:
    """Accept it as the same ledger, in place of one that is gone."""
    return call.act(lambda: call.ask.restored.accept(**body.model_dump()), lambda done: done)


@ROUTES.post("/restored/as-copy", needs=HumanAct.ACCEPT_LEDGER, shows=DecisionRecord)
def as_copy(call: ApiCall, body: AsCopy) -> ApiReply:
    """Accept it as a copy with an identity of its own."""
    return call.act(lambda: call.ask.restored.as_copy(**body.model_dump()), lambda done: done)
