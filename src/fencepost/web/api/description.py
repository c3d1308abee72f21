"""The description of REST: OpenAPI 3.1, made from the routes, at ``/api/v1/openapi.json``, behind the guard too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fastapi.openapi.utils import get_openapi

import fencepost
from fencepost.app.records import LedgerRecord
from fencepost.app.records.results import ProblemRecord
from fencepost.app.records.shapes import record_schema, records_in
from fencepost.core.problems import TYPES
from fencepost.core.rights import HumanAct
from fencepost.web.api import access, audit, concerns, jobs, letters, locks, pauses, runs, schedules
from fencepost.web.api.calls import ApiCall
from fencepost.web.api.replies import PROBLEM, ApiReply, spelled_json
from fencepost.web.api.routes import ApiOr, ApiPage, ApiRoute, ApiRoutes, Declared, Shown, routes_of

SUBJECTS: tuple[ApiRoutes, ...] = (
    concerns.ROUTES,
    runs.ROUTES,
    jobs.ROUTES,
    schedules.ROUTES,
    pauses.ROUTES,
    letters.ROUTES,
    locks.ROUTES,
    audit.ROUTES,
    access.ROUTES,
)
_REF = "#/components/schemas/"
_ABOUT = """What the command line can ask and do, for programs. Send an API token: `Authorization: Bearer fp_…`.

Whole numbers have all their digits, also beyond 2^53: read them with a parser that keeps 64-bit integers.
"""
_REFUSALS = {
    "400": "It cannot be read",
    "401": "It is not known who asks",
    "403": "Not allowed",
    "404": "Not on record, or not for this caller",
    "409": "The state does not allow it",
    "412": "It has changed since (If-Match)",
    "413": "The body is too large",
    "422": "A value does not fit",
    "500": "It failed; the server's log says why",
    "503": "The ledger is away",
}
_DESCRIPTION = ApiRoutes("description")


@_DESCRIPTION.get("/openapi.json", needs=HumanAct.LOOK, shows=LedgerRecord)
def openapi(call: ApiCall) -> ApiReply:  # noqa: ARG001 - as all routes
    """Show this description."""
    return ApiReply(_spelled())


def api_routes() -> list[ApiRoute]:
    """Return all routes of REST. Those whose path ends in a name come last: it may contain slashes."""
    found = [route for subject in (_DESCRIPTION, *SUBJECTS) for route in routes_of(subject)]
    return sorted(found, key=lambda route: ":path}" in route.path and route.path.endswith(":path}"))


@cache
def _spelled() -> str:
    return spelled_json(description(api_routes()))


def description(routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes."""
    made = get_openapi(
        title="Fencepost", version=fencepost.__version__, openapi_version="3.1.0", routes=routes, description=_ABOUT
    )
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for kind in sorted(_kinds(routes), key=lambda each: each.__name__):
        schemas[kind.__name__] = record_schema(kind, _REF)
    made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"token": []}]
    made["x-problem-types"] = list(TYPES)
    for route in routes:
        for method in route.methods or ():
            _describe(made["paths"][route.path_format][method.lower()], route.declared)
    return made


def _describe(operation: dict[str, Any], declared: Declared) -> None:
    """Add what FastAPI does not know: what is answered, which right it needs, and the headers of acts."""
    shown = {"description": "Done" if declared.is_act else "Found"}
    content = {"application/json": {"schema": _shown_schema(declared.shows)}}
    operation["responses"] = {str(declared.status): shown | {"content": content}} | {
        status: {"description": words, "content": {PROBLEM: {"schema": {"$ref": f"{_REF}ProblemRecord"}}}}
        for status, words in _REFUSALS.items()
    }
    operation["x-right"] = declared.right.value
    if declared.is_act:
        operation.setdefault("parameters", []).extend(_HEADERS)


_HEADERS = [
    {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "Your name for this request: sent again within a day, it does nothing and has the same answer.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 60, "pattern": "^[!-~]+$"},
        "example": "5e0c41d2-a7b9-3f60",
    },
    {
        "name": "If-Match",
        "in": "header",
        "required": False,
        "description": "The ETag of the run or schedule that was seen, or the version of the pause: it must be that.",
        "schema": {"type": "string", "pattern": '^"[0-9a-f]{1,64}"$'},
        "example": '"0123456789abcdef"',
    },
]


def _shown_schema(shows: Shown) -> dict[str, Any]:
    if isinstance(shows, ApiPage):
        items = {"type": "array", "items": {"$ref": f"{_REF}{shows.of.__name__}"}}
        following = {"type": ["string", "null"], "description": "The path of the next page; null if this is the last."}
        properties = {"items": items, "next": following}
        if shows.search is not None:
            properties["search"] = _or_null(shows.search)
        return {"type": "object", "properties": properties, "required": list(properties)}
    if isinstance(shows, ApiOr):
        return _or_null(shows.record)
    return {"type": "object"} if shows is LedgerRecord else {"$ref": f"{_REF}{shows.__name__}"}


def _or_null(record: type[LedgerRecord]) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"{_REF}{record.__name__}"}, {"type": "null"}]}


def _kinds(routes: Sequence[ApiRoute]) -> set[type[LedgerRecord]]:
    found: set[type[LedgerRecord]] = {ProblemRecord}
    for route in routes:
        shows = route.declared.shows
        kind = shows.of if isinstance(shows, ApiPage) else shows.record if isinstance(shows, ApiOr) else shows
        if kind is not LedgerRecord:
            found |= records_in(kind)
        if isinstance(shows, ApiPage) and shows.search is not None:
            found |= records_in(shows.search)
    return found
