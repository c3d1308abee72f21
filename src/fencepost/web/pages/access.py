"""Access: who may do what on which job; accounts, permissions, API tokens, and who is logged in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from fencepost.core.duration import typed_duration
from fencepost.core.rights import ALL_JOBS, HumanAct, Role
from fencepost.core.tick import instant
from fencepost.errors import InvalidParameters
from fencepost.web.did import did_sentence
from fencepost.web.pages.run import reason_of
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes

if TYPE_CHECKING:
    from fencepost.web.visits import Visit

PAGES = PageRoutes()


@PAGES.get("/access", needs=HumanAct.CHANGE_ACCESS)
def access(visit: Visit) -> Response:
    """Show who may do what."""
    return _page(visit)


@PAGES.post("/access/give", needs=HumanAct.CHANGE_ACCESS)
def give(visit: Visit) -> Response:
    """Give a principal a role, on one job or on all."""
    job = visit.text("job", longest=200)
    if not job and visit.form.get("all") != "on":
        raise InvalidParameters("name a job, or say that the role is for all jobs")
    if job and visit.form.get("all") == "on":
        raise InvalidParameters("name a job, or say that the role is for all jobs; not both")
    role = visit.text("role", longest=20)
    visit.ask.access.give(visit.text("principal", longest=200), role, jobs=[job or ALL_JOBS], reason=reason_of(visit))
    return _done(visit)


@PAGES.post("/access/take", needs=HumanAct.CHANGE_ACCESS)
def take(visit: Visit) -> Response:
    """Take a role away."""
    visit.ask.access.take(visit.form.get("principal", ""), jobs=[visit.form.get("job", "")], reason=reason_of(visit))
    return _done(visit)


@PAGES.post("/access/logins/end", needs=HumanAct.CHANGE_ACCESS)
def end_logins(visit: Visit) -> Response:
    """End all logins of a principal, at once and everywhere."""
    visit.ask.access.end_logins(visit.form.get("principal", ""), reason=reason_of(visit))
    return _done(visit)


@PAGES.post("/access/tokens/revoke", needs=HumanAct.CHANGE_ACCESS)
def revoke(visit: Visit) -> Response:
    """End an API token."""
    visit.ask.access.revoke_api_token(visit.form.get("id", ""), reason=reason_of(visit))
    return _done(visit)


@PAGES.post("/access/tokens/make", needs=HumanAct.CHANGE_ACCESS)
def make_token(visit: Visit) -> Response:
    """Make an API token, and show its secret on this one page."""
    job = visit.text("job", longest=200)
    made = visit.ask.access.add_api_token(
        visit.text("name", longest=100),
        visit.text("role", longest=20),
        expires_in=typed_duration(visit.text("expires", longest=20), what="expires") or "90d",
        jobs=[job or ALL_JOBS],
        reason=reason_of(visit),
    )
    return _page(visit, secret=made.secret)


def _page(visit: Visit, *, secret: str | None = None) -> Response:
    reach = visit.ask.access
    return render(
        visit,
        "access.html",
        now=visit.ask.now(),
        did=did_sentence(visit),
        secret=secret,
        accounts=reach.accounts(),
        permissions=reach.permissions(),
        role_reasons=reach.role_reasons(),
        tokens=reach.api_tokens(),
        logins=reach.logins(),
        jobs=[each.name for each in visit.ask.jobs()][:300],
        roles=[role.value for role in Role],
        all_jobs=ALL_JOBS,
        at=instant,
    )


def _done(visit: Visit) -> Response:
    return RedirectResponse(visit.url("/access", did="changed"), 303)
