"""Routes and the right that each needs: ``@PAGES.get("/runs", needs=HumanAct.LOOK)``.

**Promises.** A route that is neither in `OPEN_ROUTES` nor declares its right cannot be built: `refuse_undeclared`
raises, and the guard refuses what it does not know. What a route may do on a particular job is decided below, in
`fencepost.access`; the right here only keeps people out who have it for no job at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.routing import BaseRoute, Match, Route

from fencepost.core.rights import HumanAct
from fencepost.errors import ConfigurationError
from fencepost.web.open_routes import OPEN_ROUTES

if TYPE_CHECKING:
    from starlette.types import Scope as AsgiScope

F = TypeVar("F", bound=Callable[..., Any])
_DECLARED = "fencepost_needs"


def needs(act: HumanAct) -> Callable[[F], F]:
    """Declare on an endpoint the right that it needs."""

    def declare(endpoint: F) -> F:
        setattr(endpoint, _DECLARED, act)
        return endpoint

    return declare


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page: its method and path, the function that draws it, and the right; None if it is open."""

    method: str
    path: str
    draw: Callable[..., Any]
    act: HumanAct | None


class PageRoutes:
    """The pages of one subject, in the order in which they are matched."""

    def __init__(self) -> None:
        self._routes: list[PageRoute] = []

    def __iter__(self) -> Iterator[PageRoute]:
        return iter(self._routes)

    def get(self, path: str, *, needs: HumanAct) -> Callable[[F], F]:
        """Declare a page that shows something."""
        return self._declare("GET", path, needs)

    def post(self, path: str, *, needs: HumanAct) -> Callable[[F], F]:
        """Declare a page that does something."""
        return self._declare("POST", path, needs)

    def open_get(self, path: str) -> Callable[[F], F]:
        """Declare a page that answers without a credential; it has to be in `OPEN_ROUTES`."""
        return self._declare("GET", path, None)

    def open_post(self, path: str) -> Callable[[F], F]:
        """Declare a form that is taken without a credential; it has to be in `OPEN_ROUTES`."""
        return self._declare("POST", path, None)

    def _declare(self, method: str, path: str, act: HumanAct | None) -> Callable[[F], F]:
        def declare(draw: F) -> F:
            self._routes.append(PageRoute(method, path, draw, act))
            return draw

        return declare


def right_of(route: BaseRoute) -> HumanAct | None:
    """Return the right that a route declares, or None."""
    act = getattr(getattr(route, "endpoint", None), _DECLARED, None)
    return act if isinstance(act, HumanAct) else None


def spelled_routes(route: BaseRoute) -> list[str]:
    """Return a route as ``METHOD /path``, once per method that it takes; HEAD goes with GET."""
    methods = set(getattr(route, "methods", None) or {"*"}) - {"HEAD"}
    return [f"{method} {getattr(route, 'path', '?')}" for method in sorted(methods)]


def is_open(route: BaseRoute) -> bool:
    """Whether a route answers without a credential: all of its methods have to be listed."""
    return right_of(route) is None and all(each in OPEN_ROUTES for each in spelled_routes(route))


def refuse_undeclared(routes: Iterable[BaseRoute]) -> None:
    """Refuse to build an application with a route that is neither open nor declares a right."""
    wrong = [
        each
        for route in routes
        for each in spelled_routes(route)
        if not isinstance(route, Route) or (right_of(route) is None and not is_open(route))
    ]
    if wrong:
        raise ConfigurationError(f"these routes declare no right, and are not in OPEN_ROUTES: {', '.join(wrong)}")


def matched(routes: Iterable[BaseRoute], scope: AsgiScope) -> BaseRoute | None:
    """Return the route that will answer, as the router finds it: the first whose path and method fit."""
    return next((route for route in routes if route.matches(scope)[0] is Match.FULL), None)


def methods_at(routes: Iterable[BaseRoute], scope: AsgiScope) -> list[str]:
    """Return the methods that some route has at this path."""
    found = [route for route in routes if route.matches(scope)[0] is not Match.NONE]
    return sorted({method for route in found for method in getattr(route, "methods", None) or ()})
