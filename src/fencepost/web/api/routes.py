"""Declaring routes of REST: ``@ROUTES.get("/runs/{run_id}", needs=HumanAct.LOOK, shows=RunRecord)``.

A route is a plain function that may wait. Its first argument is the `ApiCall`; the others are read from the path, the
query and the body by FastAPI, which also writes the description of them. What it returns is a `ApiReply`.

**Promises.** Whatever a route raises becomes a problem document. A query with a name that the route does not have is
refused, and so is one that gives a single value twice.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fencepost.app.records import LedgerRecord
from fencepost.core.problems import INVALID_REQUEST, document
from fencepost.core.rights import HumanAct
from fencepost.errors import FencepostError
from fencepost.web.api.calls import ApiCall, call_of
from fencepost.web.api.fields import Body
from fencepost.web.api.replies import ApiReply, failed, invalid, invalid_request, problem, problem_response
from fencepost.web.guard import PASSING
from fencepost.web.routes import needs as declare_right
from fencepost.web.threads import in_thread
from fencepost.web.troubles import RefusedBody

PREFIX = "/api/v1"
Handler = Callable[..., ApiReply]


@dataclass(frozen=True, slots=True)
class ApiPage:
    """Says that a route shows a page of a list of these; `search` says how far a search came that ended early."""

    of: type[LedgerRecord]
    search: type[LedgerRecord] | None = None


@dataclass(frozen=True, slots=True)
class ApiOr:
    """Says that a route shows one of these, or null."""

    record: type[LedgerRecord]


Shown = type[LedgerRecord] | ApiPage | ApiOr


@dataclass(frozen=True, slots=True)
class Declared:
    """A route as it was declared: what it needs, what it shows, and whether it does something."""

    method: str
    path: str
    handler: Handler
    right: HumanAct
    shows: Shown
    status: int
    is_act: bool


class ApiRoutes:
    """The routes of one subject, in the order in which they are matched."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._declared: list[Declared] = []

    def __iter__(self) -> Iterator[Declared]:
        return iter(self._declared)

    def get(self, path: str, *, needs: HumanAct, shows: Shown) -> Callable[[Handler], Handler]:
        """Declare a route that shows something."""
        return self._declare("GET", path, needs, shows, 200, is_act=False)

    def ask(self, path: str, *, needs: HumanAct, shows: Shown) -> Callable[[Handler], Handler]:
        """Declare a route that shows something, and whose question is a body."""
        return self._declare("POST", path, needs, shows, 200, is_act=False)

    def post(self, path: str, *, needs: HumanAct, shows: Shown, status: int = 200) -> Callable[[Handler], Handler]:
        """Declare a route that does something."""
        return self._declare("POST", path, needs, shows, status, is_act=True)

    def put(self, path: str, *, needs: HumanAct, shows: Shown) -> Callable[[Handler], Handler]:
        """Declare a route that makes or changes something."""
        return self._declare("PUT", path, needs, shows, 200, is_act=True)

    def delete(self, path: str, *, needs: HumanAct, shows: Shown) -> Callable[[Handler], Handler]:
        """Declare a route that removes something."""
        return self._declare("DELETE", path, needs, shows, 200, is_act=True)

    def _declare(
        self, method: str, path: str, right: HumanAct, shows: Shown, status: int, *, is_act: bool
    ) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            self._declared.append(Declared(method, path, handler, right, shows, status, is_act))
            return handler

        return declare


class ApiRoute(APIRoute):
    """A route whose every refusal is a problem document."""

    declared: Declared

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()

        async def handle(request: Request) -> Response:
            request_id = request.scope[PASSING].request_id
            try:
                if wrong := self._wrong_query(request):
                    return invalid(wrong)
                return await answer(request)
            except RequestValidationError as error:
                return invalid(_NO_JSON) if _is_no_json(request, error) else invalid_request(error)
            except FencepostError as error:
                return problem(error, request_id)
            except RefusedBody:
                raise
            except HTTPException as error:  # a body that cannot be read at all
                detail = "the body cannot be read: it has to be JSON in UTF-8"
                return problem_response(document(INVALID_REQUEST, "Not a request", error.status_code, detail))
            except Exception as error:  # noqa: BLE001 - logged, and answered with a number
                return failed(error, request_id)

        return handle

    def _wrong_query(self, request: Request) -> list[tuple[str, str]]:
        known = {each.alias: each for each in self.dependant.query_params}
        given = Counter(name for name, _ in request.query_params.multi_items())
        unknown = [(f"query.{name[:100]}", "there is no such parameter") for name in given if name not in known]
        twice = [
            (f"query.{name}", "it can be given once")
            for name, times in given.items()
            if times > 1 and name in known and not _is_list(known[name])
        ]
        return unknown + twice


_NO_JSON = [("body", "send it as JSON, with the header Content-Type: application/json")]


def _is_no_json(request: Request, error: RequestValidationError) -> bool:
    """Whether a body was sent that does not say that it is JSON; curl says that it is a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    return not is_json and any(tuple(each["loc"]) == ("body",) and each["type"] != "missing" for each in error.errors())


def _is_list(field: Any) -> bool:
    return "list" in str(field.field_info.annotation)


def routes_of(subject: ApiRoutes) -> list[ApiRoute]:
    """Return the routes of a subject, with their rights declared on the endpoints."""
    return [_route(each, subject.subject) for each in subject]


def _route(declared: Declared, subject: str) -> ApiRoute:
    endpoint = declare_right(declared.right)(_endpoint(declared))
    route = ApiRoute(
        f"{PREFIX}{declared.path}",
        endpoint,
        methods=[declared.method],
        status_code=declared.status,
        response_model=None,
        name=f"{declared.method} {declared.path}",
        summary=(declared.handler.__doc__ or "").partition("\n")[0],
        description=(declared.handler.__doc__ or "").partition("\n")[2].strip(),
        operation_id=f"{subject}.{declared.handler.__name__.rstrip('_')}",
        tags=[subject],
        response_class=Response,
    )
    route.declared = declared
    return route


def _endpoint(declared: Declared) -> Callable[..., Awaitable[Response]]:
    """Return the endpoint of a handler, with the handler's own parameters; it is called on one of our threads."""

    async def endpoint(call: ApiCall, **given: Any) -> Response:
        made = await in_thread(declared.handler, call, **given)
        return made.response()

    signature = inspect.signature(declared.handler, eval_str=True)
    first, *others = signature.parameters.values()
    making = Annotated[ApiCall, Depends(call_of(declared.right, is_act=declared.is_act))]
    parameters = [first.replace(annotation=making), *map(_or_nothing, others)]
    endpoint.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return endpoint


def _or_nothing(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return the parameter of a body in which nothing is required with a default: no body at all is an empty one."""
    kind = parameter.annotation
    is_body = isinstance(kind, type) and issubclass(kind, Body)
    if not is_body or any(field.is_required() for field in kind.model_fields.values()):
        return parameter
    return parameter.replace(default=kind())
