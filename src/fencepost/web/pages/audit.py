"""The audit: who did what, newest first, and whether the chain is intact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from fencepost.core.rights import HumanAct
from fencepost.web.exporting import MOST_EXPORTED, export
from fencepost.web.finding import whole
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes

if TYPE_CHECKING:
    from fencepost.app.records.audit import AuditRecord
    from fencepost.web.visits import Visit

PAGES = PageRoutes()
_PAGE = 100  # entries; a link leads to older ones
_COLUMNS = ("n", "at", "who", "how", "address", "act", "job", "run_id", "reason", "outcome", "hash")
_MOST_AT_ONCE = 20_000  # entries that a page verifies; for more there is the command


@PAGES.get("/audit", needs=HumanAct.READ_AUDIT)
def audit(visit: Visit) -> Response:
    """Show a page of entries; with ``verify=1`` also compare the chain with itself."""
    ask = visit.ask
    rows = _entries(visit, _PAGE + 1)
    found, anchor = rows[:_PAGE], ask.audit.anchor()
    can_verify = anchor.n <= _MOST_AT_ONCE
    # A short chain is verified without being asked for, because that is quick.
    wants = visit.query.get("verify") == "1" or (not _filtered(visit) and anchor.n <= 1_000)
    return render(
        visit,
        "audit.html",
        now=ask.now(),
        entries=found,
        next_before=found[-1].n if len(rows) > _PAGE else None,
        anchor=anchor,
        can_verify=can_verify,
        verified=ask.audit.verify() if wants and can_verify else None,
    )


@PAGES.get("/audit.{form}", needs=HumanAct.READ_AUDIT)
def audit_exported(visit: Visit) -> Response:
    """Give entries to programs. The chain itself, to be verified elsewhere, is given by ``fencepost audit export``."""
    found = _entries(visit, MOST_EXPORTED + 1)
    return export(str(visit.where["form"]), "audit", found[:MOST_EXPORTED], _COLUMNS, is_cut=len(found) > MOST_EXPORTED)


def _entries(visit: Visit, limit: int) -> list[AuditRecord]:
    query = visit.query
    return visit.ask.audit.entries(
        job=query.get("job") or None,
        who=query.get("who") or None,
        act=query.get("act") or None,
        run_id=whole(query["run"], what="run") if query.get("run") else None,
        before_n=whole(query["before"], what="before") if query.get("before") else None,
        limit=limit,
    )


def _filtered(visit: Visit) -> bool:
    return any(visit.query.get(each) for each in ("job", "who", "act", "run", "before"))
