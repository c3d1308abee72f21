"""Nodes, leaders, locks, pauses of queues: who takes part, who leads, what is exclusive; and acts on these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from fencepost.app.records.locks import release_consequence
from fencepost.app.records.versions import pause_version
from fencepost.core.rights import HumanAct
from fencepost.errors import (
    ConfigurationError,
    FencepostError,
    InvalidParameters,
    NotAllowed,
    StateChanged,
    StoreRefused,
    StoreUnavailable,
)
from fencepost.web.did import did_sentence
from fencepost.web.exporting import MOST_EXPORTED, export
from fencepost.web.finding import whole
from fencepost.web.pages.run import reason_of
from fencepost.web.pages.schedules import pause_end_of
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fencepost.app.records import LockRecord, PastLockRecord, PauseRecord
    from fencepost.web.visits import Visit

PAGES = PageRoutes()
_COLUMNS = (
    "id",
    "name",
    "state",
    "running",
    "slots",
    "generation",
    "version",
    "token",
    "started_at",
    "dead_at",
    "dead_why",
    "lease_age_s",
    "lease_ttl_s",
    "trust_left_s",
)
_LOCK_COLUMNS = ("name", "held", "holder", "token", "acquired_at", "age_s", "ttl_s", "kept", "free_in_s", "waited_for")
_PAST_LEADERS, _PAST_HOLDERS = 20, 50  # rows, the latest; fencepost leader --history and locks history list more
_MOST_KEYS, _MOST_LOCKS = 100, 100  # rows; a link leads to the next ones
_LOOK_AGAIN_S = 10  # the age of a lease changes without a hint
_AWAY = "This store does not answer now"
_NEEDS_ALL = "that needs a role for all jobs"


@dataclass(frozen=True, slots=True)
class StoreShown:
    """The locks of one store: a page of them, or why they cannot be shown. `next_after`: where the next one begins."""

    store: str
    locks: Sequence[LockRecord] = ()
    next_after: str | None = None
    trouble: str | None = None


@PAGES.get("/nodes", needs=HumanAct.LOOK)
def nodes(visit: Visit) -> Response:
    """Show who takes part, who leads, which keys and locks are taken, and who waits for them."""
    ask = visit.ask
    is_every = visit.query.get("all") == "1"
    keys = ask.locks.keys(after=visit.query.get("key_after", ""), limit=_MOST_KEYS)
    leader, unknown = _leader(visit)
    found = ask.nodes(living=not is_every, limit=100)
    is_allowed = ask.may(HumanAct.LOOK)
    return render(
        visit,
        "nodes.html",
        now=ask.now(),
        held=ask.held_because(),
        did=did_sentence(visit),
        nodes=found,
        queues=sorted({queue for node in found if node.is_living for queue in node.queues}),
        pause_version=pause_version,
        drawn_pauses=drawn_pauses,
        is_every=is_every,
        leader=leader,
        leader_unknown=unknown,
        leaders=_leaders(visit) if is_allowed else [],
        keys=keys,
        next_key=keys[-1].key if keys and (len(keys) == _MOST_KEYS or keys[-1].more_waiting) else None,
        stores=[_shown(visit, store) for store in ask.locks.stores()] if is_allowed else [],
        shows_free=visit.query.get("locks") == "all",
        live=True,
        every_s=_LOOK_AGAIN_S,
    )


@PAGES.get("/lock", needs=HumanAct.LOOK)
def lock(visit: Visit) -> Response:
    """Show one lock: its holder, those before, and what a release would do."""
    ask, store = visit.ask, visit.query.get("store") or "ledger"
    found = ask.locks.show(visit.query.get("name", ""), store=store)
    return render(
        visit,
        "lock.html",
        now=ask.now(),
        did=did_sentence(visit),
        lock=found,
        past=ask.locks.history(found.name, store=store, limit=_PAST_HOLDERS),
        consequence=release_consequence(found),
        runs=ask.runs(states=("running",), exclusive_key=found.name, limit=1) if store == "leases" else [],
    )


@PAGES.post("/lock/release", needs=HumanAct.RELEASE_LOCK)
def release(visit: Visit) -> Response:
    """Take a lock away from the holder that the page showed, if its name was typed."""
    ask, name, store = visit.ask, visit.form.get("name", ""), visit.form.get("store") or "ledger"
    if visit.text("confirm") != name:
        raise InvalidParameters(f"to take it away, type its name, {name[:200]}")
    reason = reason_of(visit) or ""  # without one it is refused below, and that is on record
    done = ask.locks.release(name, reason=reason, token=whole(visit.form.get("token", ""), what="token"), store=store)
    did = "lock-released" if done.released else "lock-was-free"
    return RedirectResponse(visit.url("/lock", name=name, store=store, did=did), 303)


@PAGES.get("/locks.{form}", needs=HumanAct.EXPORT)
def locks_exported(visit: Visit) -> Response:
    """Give the locks of the ledger's lease store to programs."""
    found = visit.ask.locks.list(store=visit.query.get("store") or "ledger", limit=MOST_EXPORTED + 1)
    is_cut = len(found) > MOST_EXPORTED
    return export(str(visit.where["form"]), "locks", found[:MOST_EXPORTED], _LOCK_COLUMNS, is_cut=is_cut)


@PAGES.get("/nodes.{form}", needs=HumanAct.EXPORT)
def nodes_exported(visit: Visit) -> Response:
    """Give the nodes to programs."""
    found = visit.ask.nodes(limit=MOST_EXPORTED + 1)
    is_cut = len(found) > MOST_EXPORTED
    return export(str(visit.where["form"]), "nodes", found[:MOST_EXPORTED], _COLUMNS, is_cut=is_cut)


@PAGES.post("/pauses", needs=HumanAct.PAUSE_ALL)
def pause(visit: Visit) -> Response:
    """Let nodes claim nothing from a queue, or nothing at all."""
    what, ask = visit.text("what"), visit.ask
    if what != "everything" and not what.startswith("queue:"):
        raise InvalidParameters("say what to pause: a queue, or everything")
    shown = ask.pauses.list()
    if visit.form.get("drawn") != drawn_pauses(shown):
        raise StateChanged("somebody has paused or resumed something since the page was drawn. Nothing was done")
    until, duration = pause_end_of(visit)
    queue = None if what == "everything" else what.removeprefix("queue:")
    expect = pause_version(next((each for each in shown if each.queue == queue), None))
    ask.pauses.pause(queue, reason=reason_of(visit) or "", until=until, duration=duration, expect=expect)
    return RedirectResponse(visit.url("/nodes", did="paused-queue"), 303)


@PAGES.post("/pauses/resume", needs=HumanAct.RESUME_ALL)
def resume(visit: Visit) -> Response:
    """End a pause, if it is still the one that was shown."""
    visit.ask.pauses.resume(
        visit.text("queue") or None, reason=reason_of(visit), expect=visit.form.get("drawn") or "none was shown"
    )
    return RedirectResponse(visit.url("/nodes", did="resumed-queue"), 303)


@PAGES.post("/nodes/{node}/drain", needs=HumanAct.DRAIN_NODE)
def drain(visit: Visit) -> Response:
    """Ask a node to drain, if its name was typed."""
    node = str(visit.where["node"])
    names = {each.id: each.name for each in visit.ask.nodes(living=True, limit=1000)}
    if visit.text("confirm") != names.get(node, node):
        raise InvalidParameters("to drain it, type its name, as it stands beside the field")
    visit.ask.drain_node(node, reason=reason_of(visit))
    return RedirectResponse(visit.url("/nodes", did="drained"), 303)


def drawn_pauses(pauses: Sequence[PauseRecord]) -> str:
    """Return what a form carries of the pauses that it was drawn with."""
    return " ".join(pause_version(each) for each in pauses)


def _leader(visit: Visit) -> tuple[LockRecord | None, str | None]:
    """Return who leads, or why that is not known."""
    if not visit.ask.may(HumanAct.LOOK):
        return None, _NEEDS_ALL
    try:
        return visit.ask.leader(), None
    except NotAllowed:
        return None, _NEEDS_ALL
    except FencepostError as error:
        return None, str(error)


def _leaders(visit: Visit) -> list[PastLockRecord]:
    """Return who led before; nothing if the store does not answer, which the present leader says."""
    try:
        return visit.ask.locks.leaders(limit=_PAST_LEADERS)
    except (StoreUnavailable, StoreRefused):
        return []


def _shown(visit: Visit, store: str) -> StoreShown:
    """Return a page of the locks of a store. One that is away does not keep the rest from being shown."""
    is_every = visit.query.get("locks") == "all"
    after = visit.query.get("lock_after", "") if visit.query.get("store") == store else ""
    try:
        found = visit.ask.locks.list(store=store, held=not is_every, after=after, limit=_MOST_LOCKS + 1)
    except (StoreUnavailable, ConfigurationError):
        return StoreShown(store, trouble=_AWAY)
    more = found[_MOST_LOCKS - 1].name if len(found) > _MOST_LOCKS else None
    return StoreShown(store, found[:_MOST_LOCKS], more)
