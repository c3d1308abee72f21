"""Queries and bodies about one job, made from what each route declares: so that a new route is asked, too."""

from __future__ import annotations

import json
from functools import cache
from typing import Any
from urllib.parse import urlencode

from fencepost.web.api.description import api_routes, description
from fencepost.web.api.routes import ApiRoute
from tests.access.scene import Target

_TIMES = {"first": "2020-01-01T00:00Z", "last": "2020-01-01T03:00Z", "at": "2020-01-01T00:00Z"}
_WORDS: dict[str, Any] = {
    "reason": "why",
    "role": "viewer",
    "principal": "host:ann",
    "expires_in": "1d",
    "duration": "1h",
    "new": "renamed",
    "password": "correct horse battery",
    "spec": {"every_us": 3_600_000_000},
    "name": "eve",
    "before": "2019-01-01T00:00Z",
}


@cache
def _description() -> dict[str, Any]:
    return dict(description(api_routes()))


def body_of(route: ApiRoute, target: Target) -> bytes | None:
    """Return a body about a target, with each property that the description names; None where there is none."""
    operation = _description()["paths"][_path(route)][route.declared.method.lower()]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    schema = _resolved(content["schema"])
    return json.dumps(
        {
            name: _value(name, each, target)
            for name, each in schema.get("properties", {}).items()
            if name in schema.get("required", ()) or name in ("job", "jobs", "again", "all_new", "reason")
        }
    ).encode()


def query_of(route: ApiRoute, target: Target) -> list[str]:
    """Return queries about a target: one with what has to be said, and one with each other parameter by itself."""
    fields = {each.alias: each for each in route.dependant.query_params}
    needed = {name: _said(name, each, target) for name, each in fields.items() if each.field_info.is_required()}
    return [
        urlencode(needed),
        *(urlencode(needed | {n: _said(n, f, target)}) for n, f in fields.items() if n not in needed),
    ]


def _path(route: ApiRoute) -> str:
    return next(
        path
        for path in _description()["paths"]
        if path.endswith(route.declared.path.replace(":path", ""))
        and route.declared.method.lower() in _description()["paths"][path]
    )


def _said(name: str, field: Any, target: Target) -> Any:
    annotation = str(field.field_info.annotation)
    if "int" in annotation:
        return 5 if name == "limit" else target.run
    if name in ("since", "until", "at"):
        return "2020-01-01T00:00Z"
    return "dead" if name in ("state", "states") else target.schedule if name == "schedule" else target.job


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return dict(_description()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    return schema


def _value(name: str, schema: dict[str, Any], target: Target) -> Any:
    schema = _resolved(schema)
    kinds = {each.get("type") for each in schema.get("anyOf", [schema])}
    if name in _TIMES:
        return _TIMES[name]
    if name in _WORDS:
        return _WORDS[name]
    if "boolean" in kinds:
        return True
    if "array" in kinds:
        return [target.job]
    if "integer" in kinds:
        return target.run
    return {} if "object" in kinds else target.job
