"""Now: what needs a person, worst first; and what changed in the last day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from fencepost.core.rights import HumanAct
from fencepost.web.concerns import DAY, Concerns
from fencepost.web.did import did_sentence
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes

if TYPE_CHECKING:
    from fencepost.web.visits import Visit

PAGES = PageRoutes()
_CHANGES = 30


@PAGES.get("/", needs=HumanAct.LOOK)
def now(visit: Visit) -> Response:
    """Show what needs a person."""
    ask = visit.ask
    at = ask.now()
    return render(
        visit,
        "now.html",
        now=at,
        held=ask.held_because(),
        did=did_sentence(visit),
        concerns=Concerns(ask, at).found(),
        changes=ask.journal(since=at - DAY, limit=_CHANGES),
        live=True,
    )
