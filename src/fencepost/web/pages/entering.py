"""Logging in and out, the one-time link, the style and the script, and whether the server is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from fencepost.core.audit_words import LOG_IN
from fencepost.core.rights import HumanAct
from fencepost.errors import NotAuthenticated, TooManyTries
from fencepost.web.cookies import login_secret, remove_login, set_login
from fencepost.web.headers import cookies_of
from fencepost.web.rendering import plain
from fencepost.web.routes import PageRoutes
from fencepost.web.static_files import static_files
from fencepost.web.visits import local_target

if TYPE_CHECKING:
    from fencepost.access import NewLogin
    from fencepost.web.doors import Door
    from fencepost.web.links import OneTimeLink
    from fencepost.web.visits import Visit

_LASTS_S = 12 * 3600.0  # of the cookie; the login itself ends by the ledger's clock
_FOR_GOOD = "public, max-age=31536000, immutable"
_INSTEAD = "People are identified by the proxy or the application in front of it."


def entering_pages(door: Door, link: OneTimeLink | None) -> PageRoutes:
    """Return the pages for those who are not known yet."""
    pages = PageRoutes()

    @pages.open_get("/health")
    def health(_: Visit) -> Response:
        return PlainTextResponse("ok\n")

    @pages.open_get("/static/{name}")
    def static(visit: Visit) -> Response:
        found = static_files().get(str(visit.where["name"]))
        if found is None:
            return PlainTextResponse("there is no such file\n", 404)
        kind, content = found
        return Response(content, media_type=kind, headers={"cache-control": _FOR_GOOD})

    @pages.open_get("/login")
    def login(visit: Visit) -> Response:
        return _login_page(visit, door, next_=visit.query.get("next", ""))

    @pages.open_post("/login")
    def log_in(visit: Visit) -> Response:
        target = visit.form.get("next", "")
        if not door.takes_passwords:
            return _login_page(visit, door, sentence="This server takes no passwords.", status=403)
        passing = visit.passing
        try:
            made = door.authentication.log_in(
                visit.form.get("name", "")[:200],
                visit.form.get("password", "")[:2000],
                address=passing.address,
                request_id=passing.request_id,
                is_shared=door.is_behind_proxy,
            )
        except NotAuthenticated as error:
            status = 429 if isinstance(error, TooManyTries) else 401
            return _login_page(
                visit, door, next_=target, sentence=f"{error}."[:1].upper() + f"{error}."[1:], status=status
            )
        return _entered(visit, made, target)

    @pages.open_get("/enter")
    def enter(visit: Visit) -> Response:
        once = visit.query.get("once", "")
        if link is None or not link.is_valid(once):
            return _spent(visit, door)
        return HTMLResponse(plain("login.html", _values(visit, door) | {"once": once}))

    @pages.open_post("/enter")
    def entered(visit: Visit) -> Response:
        passing = visit.passing
        if link is None or not link.use(visit.form.get("once", "")):
            door.count_refused(LOG_IN, "link", passing.address)
            return _spent(visit, door)
        made = door.authentication.log_in_by_link(link.name, address=passing.address, request_id=passing.request_id)
        return _entered(visit, made, "")

    @pages.post("/logout", needs=HumanAct.LOOK)
    def log_out(visit: Visit) -> Response:
        passing = visit.passing
        cookies = cookies_of(passing.headers.get("cookie"))
        secret = login_secret(cookies, is_https=passing.is_https, root_path=visit.root_path)
        if secret:
            door.authentication.log_out(secret, address=passing.address, request_id=passing.request_id)
        response = RedirectResponse(f"{visit.root_path}/login", 303)
        remove_login(response, is_https=passing.is_https, root_path=visit.root_path)
        return response

    return pages


def _entered(visit: Visit, made: NewLogin, target: str) -> Response:
    response = RedirectResponse(local_target(target, visit.root_path), 303)
    set_login(response, made.secret, lasts_s=_LASTS_S, is_https=visit.passing.is_https, root_path=visit.root_path)
    return response


def _spent(visit: Visit, door: Door) -> Response:
    words = (
        "This link was used, is more than ten minutes old, or is not one of this server. Restart fencepost serve for "
        "another one."
    )
    return _login_page(visit, door, sentence=words, status=403)


def _values(visit: Visit, door: Door) -> dict[str, object]:
    return {
        "root_path": visit.root_path,
        "sentence": "",
        "kind": "",
        "once": None,
        "next": "",
        "has_accounts": door.takes_passwords,
        "instead": _INSTEAD,
    }


def _login_page(visit: Visit, door: Door, *, next_: str = "", sentence: str = "", status: int = 200) -> Response:
    values = _values(visit, door) | {"sentence": sentence, "kind": "bad", "next": local_target(next_, visit.root_path)}
    return HTMLResponse(plain("login.html", values), status)
