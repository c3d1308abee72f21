"""Now: what needs a person, worst first; what a person knows of; and what changed in the last day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from fencepost.core.rights import HumanAct
from fencepost.errors import NotInLedger, StateChanged
from fencepost.web.did import did_sentence
from fencepost.web.pages.run import reason_of
from fencepost.web.pages.schedules import pause_end_of
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes

if TYPE_CHECKING:
    from fencepost.web.visits import Visit

PAGES = PageRoutes()


@PAGES.get("/", needs=HumanAct.LOOK)
def now(visit: Visit) -> Response:
    """Show what needs a person."""
    ask = visit.ask
    at, found = ask.now(), ask.concerns.list()
    return render(
        visit,
        "now.html",
        now=at,
        held=ask.held_because(),
        did=did_sentence(visit),
        concerns=[each for each in found if each.acknowledged is None],
        known=[each for each in found if each.acknowledged is not None],
        sees_all=ask.may(HumanAct.LOOK),
        changes=ask.concerns.changes(),
        live=True,
    )


@PAGES.post("/now/acknowledge", needs=HumanAct.ACKNOWLEDGE)
def acknowledge(visit: Visit) -> Response:
    """Note that the one who asks knows of something that the page showed."""
    until, duration = pause_end_of(visit)
    try:
        visit.ask.concerns.acknowledge(
            visit.text("what"), visit.text("id"), note=reason_of(visit), until=until, duration=duration
        )
    except NotInLedger as error:
        raise StateChanged(f"{error}. Nothing was done: look at it again") from None
    return RedirectResponse(visit.url("/", did="acknowledged"), 303)


@PAGES.post("/now/unacknowledge", needs=HumanAct.ACKNOWLEDGE)
def unacknowledge(visit: Visit) -> Response:
    """Withdraw an acknowledgement."""
    try:
        visit.ask.concerns.unacknowledge(visit.text("what"), visit.text("id"), reason=reason_of(visit))
    except NotInLedger as error:
        raise StateChanged(f"{error}. Nothing was done: look at it again") from None
    return RedirectResponse(visit.url("/", did="unacknowledged"), 303)
