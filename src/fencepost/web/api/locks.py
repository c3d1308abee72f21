"""Locks of lease stores, their history, the leaders, and the exclusive keys of runs.

Names of locks may contain slashes. They stand at the end of a path or before one fixed word, or are a parameter.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import Field

from fencepost.app.records import LockRecord, PastLockRecord
from fencepost.app.records.locks import KeyRecord, ReleasedLockRecord, ResetLockRecord
from fencepost.core.rights import HumanAct
from fencepost.errors import ConfigurationError
from fencepost.web.api.calls import ApiCall
from fencepost.web.api.fields import LARGEST_ID, Limit, NeedsReason
from fencepost.web.api.replies import ApiReply, page, reply
from fencepost.web.api.routes import ApiPage, ApiRoutes

ROUTES = ApiRoutes("locks")
Store = Literal["ledger", "leases"]
StoreQuery = Annotated[Store, Query(description="The leases of the ledger, or the application's other store.")]
LockName = Annotated[str, Path(min_length=1, max_length=200, description="The name of a lock.", examples=["nightly"])]
After = Annotated[str, Query(max_length=250, description="A name: what comes after it is shown.")]


class ReleaseLock(NeedsReason):
    """Why a lock is taken away, and from whom: the token of its holder, as it was shown."""

    token: Annotated[int, Field(ge=0, le=LARGEST_ID)] | None = None
    store: Store = "ledger"


class ResetLock(NeedsReason):
    """Why a token is brought back."""

    store: Store = "ledger"


@ROUTES.get("/locks", needs=HumanAct.LOOK, shows=ApiPage(LockRecord))
def list_(
    call: ApiCall, *, store: StoreQuery = "ledger", held: bool = False, after: After = "", limit: Limit = 100
) -> ApiReply:
    """Show locks by name; with `held`, those that somebody has. The sessions of nodes are left out."""
    found = call.ask.locks.list(store=store, held=held, after=after, limit=limit)
    return call.page(found, limit, **({"after": found[-1].name} if found else {}))


@ROUTES.get("/locks/{name:path}", needs=HumanAct.LOOK, shows=LockRecord)
def show(call: ApiCall, name: LockName, store: StoreQuery = "ledger") -> ApiReply:
    """Show one lock."""
    return reply(call.ask.locks.show(name, store=store))


@ROUTES.post("/locks/{name:path}/release", needs=HumanAct.RELEASE_LOCK, shows=ReleasedLockRecord)
def release(call: ApiCall, name: LockName, body: ReleaseLock) -> ApiReply:
    """Take a lock away from its holder, by force.

    With `token`, only from the holder that has it; 412 if another one holds the lock. The holder notices at its next
    renewal. Until then only a fence stops its writes.
    """
    return call.act(
        lambda: call.ask.locks.release(name, reason=body.reason, token=body.token, store=body.store),
        lambda done: done,
        within=lambda done: done,
    )


@ROUTES.post("/locks/{name:path}/reset", needs=HumanAct.RELEASE_LOCK, shows=ResetLockRecord)
def reset(call: ApiCall, name: LockName, body: ResetLock) -> ApiReply:
    """Bring back the token of a free lock that a wrong clock has put more than a day ahead."""
    return call.act(
        lambda: call.ask.locks.reset(name, reason=body.reason, store=body.store),
        lambda done: done,
        within=lambda done: done,
    )


@ROUTES.get("/lock-history", needs=HumanAct.LOOK, shows=ApiPage(PastLockRecord))
def history(
    call: ApiCall,
    *,
    name: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    store: StoreQuery = "ledger",
    limit: Limit = 100,
) -> ApiReply:
    """Show who held which lock, from when until when, and why it ended; the newest `limit`, newest first."""
    found = call.ask.locks.history(name, store=store, limit=limit)
    if found is None:
        raise ConfigurationError("this store keeps no history")
    return page(found, None)


@ROUTES.get("/leaders", needs=HumanAct.LOOK, shows=ApiPage(PastLockRecord))
def leaders(call: ApiCall, limit: Limit = 100) -> ApiReply:
    """Show the nodes that led until now: the newest `limit`, newest first. `/leader` is the present one."""
    return page(call.ask.locks.leaders(limit=limit), None)


@ROUTES.get("/keys", needs=HumanAct.LOOK, shows=ApiPage(KeyRecord))
def keys(call: ApiCall, after: After = "", limit: Limit = 100) -> ApiReply:
    """Show the exclusive keys that runs have or wait for."""
    found = call.ask.locks.keys(after=after, limit=limit)
    is_cut = bool(found) and found[-1].more_waiting
    return call.page(found, len(found) if is_cut else limit, **({"after": found[-1].key} if found else {}))
