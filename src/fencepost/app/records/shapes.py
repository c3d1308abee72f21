"""Records by the types of their fields: as JSON Schema for those who read them, and read back from their JSON."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from typing import Any, TypeVar

from fencepost.app.records.record import LedgerRecord

R = TypeVar("R", bound=LedgerRecord)
Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    type(None): {"type": "null"},
    Any: {},
}
_ELSEWHERE = {"Became": str}  # imported for type checkers alone
_HINTS: dict[Any, dict[str, Any]] = {}


def record_schema(kind: type[LedgerRecord], ref: str) -> Schema:
    """Return the JSON Schema of a record; `ref` precedes the names of the records in it."""
    properties = {name: _schema(hint, ref) for name, hint in hints_of(kind).items()}
    words = " ".join((kind.__doc__ or "").split())
    required = [field.name for field in fields(kind) if field.default is MISSING]
    return {"type": "object", "description": words, "properties": properties, "required": required}


def records_in(kind: type[LedgerRecord]) -> set[type[LedgerRecord]]:
    """Return the class and those of all records in it."""
    found = {kind}
    for hint in hints_of(kind).values():
        for each in _leaves(hint):
            if _is_record(each):
                found |= records_in(each)
    return found


def read_record(kind: type[R], document: Mapping[str, Any]) -> R:
    """Return the record that this JSON was made of. Fields of a later release are left out, missing ones are None."""
    values = {name: _read(hint, document.get(name)) for name, hint in hints_of(kind).items()}
    return kind(**values)


def hints_of(kind: type[LedgerRecord]) -> dict[str, Any]:
    """Return the types of a record's fields."""
    if kind not in _HINTS:
        known = typing.get_type_hints(kind, localns=_ELSEWHERE)
        _HINTS[kind] = {field.name: known[field.name] for field in fields(kind)}
    return _HINTS[kind]


def _schema(hint: Any, ref: str) -> Schema:
    if _is_record(hint):
        return {"$ref": f"{ref}{hint.__name__}"}
    if _is_choice(hint):
        return {"anyOf": [_schema(each, ref) for each in typing.get_args(hint)]}
    if _is_list(hint):
        return {"type": "array", "items": _schema(typing.get_args(hint)[0], ref)}
    if typing.get_origin(hint) is Mapping:  # or what an edit by hand has made of it
        return {}
    return dict(_PLAIN[hint])


def _read(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if _is_choice(hint):
        return _read(next(each for each in typing.get_args(hint) if each is not type(None)), value)
    if _is_record(hint):
        return read_record(hint, value)
    if _is_list(hint):
        return tuple(_read(typing.get_args(hint)[0], each) for each in value)
    if hint is datetime:
        return datetime.fromisoformat(value)
    return float(value) if hint is float else value


def _leaves(hint: Any) -> list[Any]:
    inner = [each for each in typing.get_args(hint) if each is not Ellipsis]
    return [leaf for each in inner for leaf in _leaves(each)] if inner else [hint]


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint) and issubclass(hint, LedgerRecord)


def _is_choice(hint: Any) -> bool:
    return typing.get_origin(hint) in (types.UnionType, typing.Union)


def _is_list(hint: Any) -> bool:
    return typing.get_origin(hint) in (Sequence, tuple, list)
