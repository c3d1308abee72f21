"""Finds the kind of a parameter from its annotation, or from the description that is stored in the ledger.

**Promises.** An annotation must name a supported kind (`SUPPORTED`), or leave the kind open (no annotation, ``Any``,
``object``, a name that only type checkers can resolve). Any other is refused, because the function would get something
else than its annotation says: a list for a tuple, a dictionary for a dataclass or a model.

**Not promised.** If the annotation leaves the kind open, a value is only checked to be JSON, and the function gets the
plain JSON value. Nothing is evaluated.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID  # noqa: TID251 - only the type; the Runtime generates ids

from fencepost.core.kinds import (
    ANYTHING,
    DATE,
    DATETIME,
    DECIMAL,
    IDENTIFIER,
    NOTHING,
    NUMBER,
    SECRET,
    TEXT,
    TRUTH,
    WHOLE,
    DictOf,
    Either,
    Json,
    ListOf,
    OneOf,
    ParameterKind,
)
from fencepost.core.secret import Secret

_NAMED: Mapping[str, ParameterKind] = {
    kind.name: kind for kind in (WHOLE, NUMBER, TEXT, TRUTH, NOTHING, DATE, DATETIME, DECIMAL, IDENTIFIER, SECRET)
}
_BY_TYPE: Mapping[object, ParameterKind] = {
    int: WHOLE,
    float: NUMBER,
    str: TEXT,
    bool: TRUTH,
    Secret: SECRET,
    Secret[str]: SECRET,
    None: NOTHING,
    type(None): NOTHING,
    date: DATE,
    datetime: DATETIME,
    Decimal: DECIMAL,
    UUID: IDENTIFIER,
    inspect.Parameter.empty: ANYTHING,
    Any: ANYTHING,
    object: ANYTHING,
}
_SECRET = re.compile(r"\bSecret\s*\[")
_DEEPEST_ALIAS = 16  # more than anyone nests; ends the search in an alias that refers to itself
_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


SUPPORTED = (
    "int, float, str, bool, None, date, datetime, Decimal, UUID, an Enum, Literal, list[…], dict[str, …], a union of "
    "these, Secret[str], or no annotation, for any JSON value"
)


class Unsupported(TypeError):
    """A parameter cannot have this annotation; `annotation` is the part that is not supported."""

    def __init__(self, annotation: Any) -> None:
        super().__init__(annotation)
        self.annotation = annotation

    def __str__(self) -> str:
        """Return the annotation as it is written in code."""
        is_class = issubclass(type(self.annotation), type)  # not isinstance: a TypedDict reports another class
        return self.annotation.__qualname__ if is_class else str(self.annotation)


def kind_of(annotation: Any) -> ParameterKind:
    """Return the kind that an annotation asks for, `ANYTHING` if it leaves the kind open, or raise `Unsupported`."""
    annotation = _unwrapped(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _union(annotation, tuple(kind_of(each) for each in arguments))
    if origin is typing.Literal:
        return _literal(arguments)
    if annotation in _LISTS or (origin in _LISTS and len(arguments) <= 1):
        return ListOf(_not_secret(annotation, kind_of(arguments[0])) if arguments else ANYTHING)
    if annotation in _DICTS or origin in _DICTS:
        return _dictionary(annotation, arguments)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enumeration(annotation)
    return _known(annotation)


def kind_from_json(described: Json) -> ParameterKind:
    """Return the kind that `to_json` described. A description by a newer release that is unknown gives `ANYTHING`."""
    if isinstance(described, str):
        return _NAMED.get(described, ANYTHING)
    if isinstance(described, dict) and len(described) == 1:
        ((form, parts),) = described.items()
        return _FORMS[form](parts) if form in _FORMS else ANYTHING
    return ANYTHING


_FORMS: Mapping[str, Callable[[Any], ParameterKind]] = {
    "literal": lambda choices: OneOf(_pairs(choices)),
    "enum": lambda choices: OneOf(_pairs(choices), is_enum=True),
    "list": lambda item: ListOf(kind_from_json(item)),
    "dict": lambda value: DictOf(kind_from_json(value)),
    "either": lambda kinds: _either(tuple(kind_from_json(each) for each in kinds)),
}


def _known(annotation: Any) -> ParameterKind:
    if isinstance(annotation, str | typing.ForwardRef):  # a name that could not be resolved
        if _SECRET.search(str(annotation)):  # the function would get the name, and might print it as a value
            raise Unsupported(f"{annotation}, and Secret is not imported at run time")
        return ANYTHING
    try:
        return _BY_TYPE[annotation]
    except (KeyError, TypeError):  # unknown, or not hashable
        raise Unsupported(annotation) from None


def _dictionary(annotation: Any, arguments: tuple[Any, ...]) -> ParameterKind:
    if not arguments:
        return DictOf(ANYTHING)
    key, value = arguments
    if _unwrapped(key) not in (str, Any):
        raise Unsupported(annotation)
    return DictOf(_not_secret(annotation, kind_of(value)))


def _union(annotation: Any, kinds: tuple[ParameterKind, ...]) -> ParameterKind:
    if SECRET in kinds and not set(kinds) <= {SECRET, NOTHING}:  # a text would be taken for a name
        raise Unsupported(annotation)
    return _either(kinds)


def _not_secret(annotation: Any, kind: ParameterKind) -> ParameterKind:
    """Refuse secrets inside of something else: only arguments themselves are looked up."""
    if holds_secret(kind):
        raise Unsupported(annotation)
    return kind


def holds_secret(kind: ParameterKind) -> bool:
    """Whether a parameter of this kind is a `Secret`, or may be one."""
    return kind is SECRET or (isinstance(kind, Either) and SECRET in kind.kinds)


def _unwrapped(annotation: Any) -> Any:
    """Resolve `NewType` and, from Python 3.12, ``type X = …``."""
    for _ in range(_DEEPEST_ALIAS):
        inner = getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)
        if inner is None:
            return annotation
        annotation = inner
    return annotation


def _either(kinds: tuple[ParameterKind, ...]) -> ParameterKind:
    return ANYTHING if ANYTHING in kinds else Either(kinds)


def _literal(values: tuple[Any, ...]) -> ParameterKind:
    for value in values:
        if not isinstance(value, str | int | None) or isinstance(value, Enum):
            raise Unsupported(f"Literal[{value!r}]")
    if None in values:
        return _either((NOTHING, _literal(tuple(value for value in values if value is not None))))
    return OneOf(tuple((str(value), value) for value in values))


def _enumeration(enum: type[Enum]) -> ParameterKind:
    values = [(member.name, member.value) for member in enum]
    is_plain = all(type(value) in (str, int, bool) for _, value in values)
    kept = tuple(values if is_plain else ((name, name) for name, _ in values))
    return OneOf(kept, enum=enum, is_enum=True, by_name=not is_plain)


def _pairs(choices: list[list[Any]]) -> tuple[tuple[str, Json], ...]:
    return tuple((str(name), kept) for name, kept in choices)
