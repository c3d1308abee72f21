"""The pages as one ASGI application: ``app.mount("/fencepost", web(app, auth=who))``, or ``fencepost serve``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from fencepost.errors import FencepostError, InvalidSetting
from fencepost.web.api.description import api_routes
from fencepost.web.doors import Door, HostCallable, Operated, ProxyHeader
from fencepost.web.endpoints import route_of
from fencepost.web.fragments import Fragments
from fencepost.web.guard import PASSING, Guard
from fencepost.web.hosts import allowed_hosts as hosts_of
from fencepost.web.live import Hints, live_route
from fencepost.web.pages import (
    access,
    audit,
    jobs,
    new_schedule,
    nodes,
    now,
    retrying,
    run,
    runs,
    schedules,
    trigger,
    why,
)
from fencepost.web.pages.entering import entering_pages
from fencepost.web.routes import methods_at, refuse_undeclared
from fencepost.web.troubles import RefusedBody, TroublePages

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from fencepost.web.links import OneTimeLink

_SUBJECTS = (now, runs, run, retrying, trigger, new_schedule, jobs, why, schedules, nodes, audit, access)


def web(
    app: Operated,
    *,
    auth: HostCallable | None = None,
    allowed_hosts: Iterable[str] = (),
    prefix: str = "",
    proxy: ProxyHeader | None = None,
    link: OneTimeLink | None = None,
    is_https: bool = False,
) -> Guard:
    """Return the pages of an application, to be mounted or served. It opens the ledger with the first request.

    Args:
        app: the application whose jobs are shown.
        auth: called with each request, returns who it comes from: a name, a `HostPrincipal` with roles, or None.
            Without it, people log in with accounts of their own (``fencepost users``).
        allowed_hosts: the names under which the pages are reached, besides those of the loopback.
        prefix: the path under which a proxy shows them. Not needed where an application mounts them.
        proxy: a proxy that has identified people, and names them in a header. Stand-alone only.
        link: a one-time link for the person who starts the server.
        is_https: a proxy in front speaks TLS, so cookies are marked as secure, and wrong passwords are counted by
            account alone: the address of each connection is the proxy's.
    """
    if auth is not None and proxy is not None:
        raise InvalidSetting("give auth= or proxy=, not both: it would be open whom to believe")
    door = Door(app, proxy=proxy, host=auth, is_behind_proxy=is_https)
    hints = Hints(door)
    fragments = Fragments(door.runtime, lambda: hints.version)
    pages = [*entering_pages(door, link), *(page for subject in _SUBJECTS for page in subject.PAGES)]
    routes: list[BaseRoute] = [route_of(page, fragments) for page in pages]
    routes.append(live_route(hints))
    routes.extend(api_routes())
    troubles = TroublePages(door.runtime, can_log_in=door.takes_passwords)
    inner = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        routes=routes,
        redirect_slashes=False,
        exception_handlers=_handlers(troubles),
    )
    refuse_undeclared(inner.routes)
    return Guard(
        inner,
        inner.routes,
        door=door,
        hosts=hosts_of(allowed_hosts),
        troubles=troubles,
        prefix=checked_prefix(prefix),
        is_https=is_https,
    )


Handler = Callable[[Request, Any], Coroutine[Any, Any, Response]]


def _handlers(troubles: TroublePages) -> dict[int | type[Exception], Handler]:
    """Return what answers where there is no route, and where a route raises: a sentence, never a traceback."""

    async def nowhere(request: Request, _: Any) -> Response:
        return troubles.no_such_page(request.scope[PASSING], root_path=request.scope.get("root_path", ""))

    async def another_method(request: Request, _: Any) -> Response:
        scope = request.scope
        others = methods_at(request.app.routes, scope)
        return troubles.no_such_method(scope["method"], others, scope[PASSING], root_path=scope.get("root_path", ""))

    async def failed(request: Request, error: Any) -> Response:
        return troubles.response(error, request.scope[PASSING], root_path=request.scope.get("root_path", ""))

    return {404: nowhere, 405: another_method, FencepostError: failed, RefusedBody: failed, Exception: failed}


def checked_prefix(prefix: str) -> str:
    """Return a path under which pages can be shown, without a slash at its end; refuse anything else."""
    path = prefix.rstrip("/")
    if path and (
        not path.startswith("/") or not path.isascii() or any(each in path for each in "?#%\\\"' ;<>") or "//" in path
    ):
        raise InvalidSetting(f"prefix {prefix!r} is not a path such as /fencepost")
    return path
