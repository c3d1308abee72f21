"""A form for the parameters of a job, made from the signature that a deploy has put on record.

A field that is left empty is left out, so the function's own default applies. Everything else is read as on the command
line (``-p name=value``), by the kind of the parameter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.errors import InvalidParameters

PREFIX = "p."
MORE = "more"
_INPUTS = {"int": "number", "float": "number", "date": "date"}


@dataclass(frozen=True, slots=True)
class ParameterField:
    """One field. `choices` is empty where anything may be typed; `input` is the type of the input element."""

    name: str
    words: str
    input: str
    is_required: bool
    choices: Sequence[str]
    value: str


def parameter_fields(signature: Mapping[str, Any], values: Mapping[str, Any]) -> list[ParameterField]:
    """Return the fields of a signature, filled with `values`; what cannot be read is left out."""
    given: Any = _table(signature).get("parameters")
    known = [
        each
        for each in (given if isinstance(given, list) else ())
        if isinstance(each, Mapping) and isinstance(each.get("name"), str)
    ]
    return [_field(each, values) for each in known]


def takes_more(signature: Mapping[str, Any]) -> bool:
    """Whether the job takes parameters of any other name, too."""
    return bool(_table(signature).get("more"))


def other_parameters(signature: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return those of `values` that the signature does not name, as JSON; empty if the job takes no such ones."""
    named = {each.name for each in parameter_fields(signature, {})}
    others = {name: value for name, value in values.items() if name not in named}
    return json.dumps(others, ensure_ascii=False) if others and takes_more(signature) else ""


def _table(stored: Any) -> Mapping[str, Any]:
    """Return stored JSON that should be an object; an empty one if somebody has damaged it."""
    return stored if isinstance(stored, Mapping) else {}


def _field(parameter: Mapping[str, Any], values: Mapping[str, Any]) -> ParameterField:
    name, kind = str(parameter["name"]), parameter.get("kind")
    return ParameterField(
        name=name,
        words=_words(kind),
        input=_INPUTS.get(kind, "text") if isinstance(kind, str) else "text",
        is_required=bool(parameter.get("required")),
        choices=_choices(kind),
        value=_typed(values[name], kind) if name in values else "",
    )


def _choices(kind: Any) -> Sequence[str]:
    if kind == "bool":
        return ("true", "false")
    if isinstance(kind, Mapping) and len(kind) == 1:
        ((form, parts),) = kind.items()
        if form in ("literal", "enum") and isinstance(parts, list):
            return tuple(str(each[0]) for each in parts if isinstance(each, list) and each)
    return ()


def _words(kind: Any) -> str:
    if kind is None:
        return "any JSON"
    if kind == "secret" or (
        isinstance(kind, Mapping) and kind.get("either") in (["secret", "null"], ["null", "secret"])
    ):
        return "the name of a secret, not its value"
    return kind if isinstance(kind, str) else "JSON" if not isinstance(kind, Mapping) else next(iter(kind), "JSON")


def _typed(value: Any, kind: Any) -> str:
    """Return a value as one would type it."""
    if isinstance(value, str) and kind != "json":
        return value
    return json.dumps(value, ensure_ascii=False)


def typed_parameters(form: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the parameters that were typed, by name; those that were left empty are left out."""
    typed = {name.removeprefix(PREFIX): value for name, value in form if name.startswith(PREFIX) and value != ""}
    more = next((value for name, value in form if name == MORE and value.strip()), "")
    return typed | _more(more)


def _more(text: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidParameters("other parameters: that is not valid JSON") from None
    if not isinstance(read, dict):
        raise InvalidParameters('other parameters: write a JSON object, such as {"dry": true}')
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in read.items()}
