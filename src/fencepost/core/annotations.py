"""From an annotation to the kind of a parameter, and from what the ledger keeps of it.

**Not promised.** An annotation that is not known here is not checked beyond being JSON, and the function gets the
JSON as it is. Nothing is evaluated.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID  # noqa: TID251 - the type alone; making one is the Runtime's

from fencepost.core.kinds import (
    ANYTHING,
    DATE,
    DATETIME,
    DECIMAL,
    IDENTIFIER,
    NOTHING,
    NUMBER,
    TEXT,
    TRUTH,
    WHOLE,
    DictOf,
    Either,
    Json,
    Kind,
    ListOf,
    OneOf,
)

_NAMED: Mapping[str, Kind] = {
    kind.name: kind for kind in (WHOLE, NUMBER, TEXT, TRUTH, NOTHING, DATE, DATETIME, DECIMAL, IDENTIFIER)
}
_BY_TYPE: Mapping[object, Kind] = {
    int: WHOLE,
    float: NUMBER,
    str: TEXT,
    bool: TRUTH,
    None: NOTHING,
    type(None): NOTHING,
    date: DATE,
    datetime: DATETIME,
    Decimal: DECIMAL,
    UUID: IDENTIFIER,
    list: ListOf(ANYTHING),
    dict: DictOf(ANYTHING),
}
_DEEPEST_ALIAS = 16
_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def kind_of(annotation: Any) -> Kind:
    """Return the kind that an annotation asks for; `ANYTHING` where it is not known."""
    annotation = _unwrapped(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _either(tuple(kind_of(each) for each in arguments))
    if origin is typing.Literal:
        return _literal(arguments)
    if origin in _LISTS and len(arguments) == 1:
        return ListOf(kind_of(arguments[0]))
    if origin in _DICTS and len(arguments) == 2:
        return DictOf(kind_of(arguments[1])) if arguments[0] in (str, Any) else ANYTHING
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enumeration(annotation)
    return _known(annotation)


def kind_from_json(described: Json) -> Kind:
    """Return the kind that `to_json` described; what a newer release described otherwise is `ANYTHING`."""
    if isinstance(described, str):
        return _NAMED.get(described, ANYTHING)
    if isinstance(described, dict) and len(described) == 1:
        ((form, parts),) = described.items()
        return _FORMS[form](parts) if form in _FORMS else ANYTHING
    return ANYTHING


_FORMS: Mapping[str, Callable[[Any], Kind]] = {
    "literal": lambda choices: OneOf(_pairs(choices)),
    "enum": lambda choices: OneOf(_pairs(choices), is_enum=True),
    "list": lambda item: ListOf(kind_from_json(item)),
    "dict": lambda value: DictOf(kind_from_json(value)),
    "either": lambda kinds: _either(tuple(kind_from_json(each) for each in kinds)),
}


def _known(annotation: Any) -> Kind:
    try:
        return _BY_TYPE.get(annotation, ANYTHING)
    except TypeError:  # not hashable, so none of ours
        return ANYTHING


def _unwrapped(annotation: Any) -> Any:
    """Look through `NewType` and, from Python 3.12, ``type X = …``."""
    for _ in range(_DEEPEST_ALIAS):
        inner = getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)
        if inner is None:
            return annotation
        annotation = inner
    return annotation


def _either(kinds: tuple[Kind, ...]) -> Kind:
    return ANYTHING if ANYTHING in kinds else Either(kinds)


def _literal(values: tuple[Any, ...]) -> Kind:
    if not all(isinstance(value, str | int) and not isinstance(value, Enum) for value in values):
        return ANYTHING
    return OneOf(tuple((str(value), value) for value in values))


def _enumeration(enum: type[Enum]) -> Kind:
    values = [(member.name, member.value) for member in enum]
    is_plain = all(type(value) in (str, int, bool) for _, value in values)
    kept = tuple(values if is_plain else ((name, name) for name, _ in values))
    return OneOf(kept, enum=enum, is_enum=True, by_name=not is_plain)


def _pairs(choices: list[list[Any]]) -> tuple[tuple[str, Json], ...]:
    return tuple((str(name), kept) for name, kept in choices)
