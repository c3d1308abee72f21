"""From a page, a function that may wait, to an endpoint of the application."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette._utils import get_route_path
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fencepost.errors import InvalidParameters
from fencepost.web.fragments import Fragments
from fencepost.web.guard import PASSING, Passing
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoute, needs
from fencepost.web.threads import in_thread
from fencepost.web.troubles import trouble_of
from fencepost.web.visits import Visit, first_of_each, read_pairs

if TYPE_CHECKING:
    from collections.abc import Awaitable

_FORM = "application/x-www-form-urlencoded"


def route_of(page: PageRoute, fragments: Fragments) -> Route:
    """Return the route of a page, with its right declared on the endpoint."""
    endpoint = _endpoint(page.draw, fragments)
    if page.act is not None:
        endpoint = needs(page.act)(endpoint)
    return Route(page.path, endpoint, methods=[page.method], name=f"{page.method} {page.path}")


def _endpoint(draw: Callable[[Visit], Response], fragments: Fragments) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        visit = await visit_of(request)
        if visit.is_fragment and visit.passing.entry is not None and request.method == "GET":
            return await in_thread(fragments.get, visit, lambda: _drawn(draw, visit))
        return await in_thread(_drawn, draw, visit)

    return endpoint


async def visit_of(request: Request) -> Visit:
    """Return the visit of a request; the body is read here, within the guard's bounds."""
    passing: Passing = request.scope[PASSING]
    pairs: tuple[tuple[str, str], ...] = ()
    if request.method == "POST":
        kind = passing.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = await request.body()
        if body and kind != _FORM:
            raise InvalidParameters(f"a form is sent as {_FORM}")
        pairs = read_pairs(body.decode("utf-8", "replace"))
    return Visit(
        passing=passing,
        root_path=request.scope.get("root_path", ""),
        path=unquote(get_route_path(request.scope)),
        where=request.path_params,
        query=first_of_each(read_pairs(request.url.query)),
        form=first_of_each(pairs),
        form_list=pairs,
    )


def _drawn(draw: Callable[[Visit], Response], visit: Visit) -> Response:
    """Draw a page. What goes wrong for a reason that people can mend is told within the layout of the pages."""
    try:
        return draw(visit)
    except Exception as error:
        told = trouble_of(error, visit.passing.request_id)
        if told.status >= 500 or visit.passing.entry is None:
            raise
        values = {"title": told.title, "sentence": told.sentence, "kind": told.kind}
        links = [("Back to Now", visit.url("/"))]
        safe = Visit(visit.passing, visit.root_path, visit.path, visit.where, {})
        return render(safe, "message.html", status=told.status, links=links, **values)
