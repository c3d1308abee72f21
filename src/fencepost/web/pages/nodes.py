"""Nodes, the leader, and what is exclusive right now."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from starlette.responses import Response

from fencepost.core.rights import HumanAct
from fencepost.errors import FencepostError, NotAllowed
from fencepost.web.exporting import export
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes

if TYPE_CHECKING:
    from fencepost.app.records import LockRecord
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
    return render(
        visit,
        "nodes.html",
        now=ask.now(),
        held=ask.held_because(),
        nodes=ask.nodes(living=not is_every, limit=100),
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
