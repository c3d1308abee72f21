"""Why: what became of a due time, also a past one, as a sentence and as a chain of facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from fencepost.core.rights import HumanAct
from fencepost.errors import ConfigurationError, NotInLedger
from fencepost.web.finding import read_instant
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes

if TYPE_CHECKING:
    from fencepost.web.visits import Visit

PAGES = PageRoutes()
_MOST_NAMED = 300  # jobs that the field suggests; the name of any other one can be typed


@PAGES.get("/why", needs=HumanAct.LOOK)
def why(visit: Visit) -> Response:
    """Answer for a job or schedule and a time; without a time, for the latest due time."""
    ask, now = visit.ask, visit.ask.now()
    job, at = visit.query.get("job", "").strip(), visit.query.get("at", "").strip()
    answers: Any = None
    wrong, status = None, 200
    if job:
        try:
            answers = ask.why(job, read_instant(at, now=now, what="at") if at else None)
        except NotInLedger as error:
            wrong, status = str(error), 404
        except ConfigurationError as error:
            wrong, status = str(error), 400
    names = [each.name for each in ask.jobs()][:_MOST_NAMED] if not visit.is_fragment else []
    return render(
        visit,
        "why.html",
        status=status,
        now=now,
        held=ask.held_because(),
        job=job,
        at=at,
        answers=answers,
        wrong=wrong,
        names=names,
    )
