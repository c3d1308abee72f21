"""Nodes, the leader, what is exclusive right now, pauses of queues, and draining a node."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from fencepost.app.records.versions import pause_version
from fencepost.core.rights import HumanAct
from fencepost.errors import FencepostError, InvalidParameters, NotAllowed, StateChanged
from fencepost.web.did import did_sentence
from fencepost.web.exporting import export
from fencepost.web.pages.run import reason_of
from fencepost.web.pages.schedules import pause_end_of
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fencepost.app.records import LockRecord, PauseRecord
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
)
_MOST_KEYS = 200


@PAGES.get("/nodes", needs=HumanAct.LOOK)
def nodes(visit: Visit) -> Response:
    """Show who takes part, who leads, and which keys are taken."""
    ask = visit.ask
    is_every = visit.query.get("all") == "1"
    running = [each for each in ask.runs(states=("running",), limit=_MOST_KEYS) if each.exclusive_key]
    waiting = ask.runs(states=("waiting",), waits_for="key", limit=_MOST_KEYS)
    leader, unknown = _leader(visit)
    found = ask.nodes(living=not is_every, limit=100)
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
        keys=running,
        waiters=Counter(each.exclusive_key for each in waiting),
        live=True,
    )


@PAGES.get("/nodes.{form}", needs=HumanAct.EXPORT)
def nodes_exported(visit: Visit) -> Response:
    """Give the nodes to programs."""
    found = visit.ask.nodes(limit=1000)
    return export(str(visit.where["form"]), "nodes", found, _COLUMNS, is_cut=len(found) >= 1000)


@PAGES.post("/pauses", needs=HumanAct.PAUSE_ALL)
def pause(visit: Visit) -> Response:
    """Let nodes claim nothing from a queue, or nothing at all."""
    what, ask = visit.text("what"), visit.ask
    if what != "everything" and not what.startswith("queue:"):
        raise InvalidParameters("say what to pause: a queue, or everything")
    if visit.form.get("drawn") != drawn_pauses(ask.pauses.list()):
        raise StateChanged("somebody has paused or resumed something since the page was drawn. Nothing was done")
    until, duration = pause_end_of(visit)
    queue = None if what == "everything" else what.removeprefix("queue:")
    ask.pauses.pause(queue, reason=reason_of(visit) or "", until=until, duration=duration)
    return RedirectResponse(visit.url("/nodes", did="paused-queue"), 303)


@PAGES.post("/pauses/resume", needs=HumanAct.RESUME_ALL)
def resume(visit: Visit) -> Response:
    """End a pause, if it is still the one that was shown."""
    visit.ask.pauses.resume(
        visit.text("queue") or None, reason=reason_of(visit), expect=visit.form.get("drawn") or "none was shown"
    )
    return RedirectResponse(visit.url("/nodes", did="resumed-queue"), 303)


@PAGES.post("/nodes/{id}/drain", needs=HumanAct.DRAIN_NODE)
def drain(visit: Visit) -> Response:
    """Ask a node to drain, if its name was typed."""
    node = str(visit.where["id"])
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
        return None, "that needs a role for all jobs"
    try:
        return visit.ask.leader(), None
    except NotAllowed:
        return None, "that needs a role for all jobs"
    except FencepostError as error:
        return None, str(error)
