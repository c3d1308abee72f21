"""Converts items into the values of some columns, in their order.

An item may be

- a named tuple, or a SQLAlchemy row: its fields are used by name, and those without a column are left out;
- a tuple, a list or another sequence: one value for each column, in their order;
- a mapping: its values are used by name, and those without a column are left out;
- any other object: its attributes are used by name.

This is decided once for a chunk and a type of item, not for each item.

**Errors** are about an item (`ValueError`, `TypeError`), so a bulk job divides the chunk to find it, and stores it as a
dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

Rows = Sequence[Sequence[Any]]
_SHOWN = 200  # characters of an item in the error about it


def values_of(items: Sequence[Any], columns: tuple[str, ...]) -> Rows:
    """Return the values of each item."""
    kinds = set(map(type, items))
    if len(kinds) == 1:
        return _of_one_kind(items, columns)
    rows: list[Any] = []
    for item in items:
        rows += _of_one_kind((item,), columns)
    return rows


def _of_one_kind(items: Sequence[Any], columns: tuple[str, ...]) -> Rows:
    first = items[0]
    names = getattr(first, "_fields", None)
    if isinstance(names, tuple) and isinstance(first, Sequence):
        return _of_named(items, names, columns)
    if isinstance(first, Mapping):
        return _picked(items, _getter(itemgetter, columns), columns)
    if isinstance(first, str | bytes | bytearray | memoryview):
        raise TypeError(f"an item is a string, {_shown(first)}, but {_wanted(columns)} are needed")
    if isinstance(first, Sequence):
        return _of_sequences(items, columns)
    return _picked(items, _getter(attrgetter, columns), columns)


def _of_named(items: Sequence[Any], names: tuple[str, ...], columns: tuple[str, ...]) -> Rows:
    if names == columns:
        return items
    missing = [column for column in columns if column not in names]
    if missing:
        raise ValueError(
            f"an item has the fields {', '.join(names)} but not {', '.join(missing)}; use the names of the "
            "columns (SELECT … AS …), or let process() return a plain tuple"
        )
    return list(map(_getter(itemgetter, tuple(names.index(column) for column in columns)), items))


def _of_sequences(items: Sequence[Any], columns: tuple[str, ...]) -> Rows:
    if set(map(len, items)) == {len(columns)}:
        return items
    wrong = next(item for item in items if len(item) != len(columns))
    raise ValueError(f"an item has {len(wrong)} values, {_shown(wrong)}, but {_wanted(columns)} are needed")


def _picked(items: Sequence[Any], get: Callable[[Any], Sequence[Any]], columns: tuple[str, ...]) -> Rows:
    try:
        return list(map(get, items))
    except (KeyError, AttributeError) as error:
        wrong = next((item for item in items if not _has_all(item, get)), items[0])
        raise ValueError(f"an item, {_shown(wrong)}, does not have all of {', '.join(columns)}: {error}") from error


def _has_all(item: Any, get: Callable[[Any], Sequence[Any]]) -> bool:
    try:
        get(item)
    except (KeyError, AttributeError):
        return False
    return True


def _getter(kind: Callable[..., Any], places: tuple[Any, ...]) -> Callable[[Any], Sequence[Any]]:
    """Return a function that returns some values of an item as a tuple, also if there is only one."""
    get = kind(*places)
    return get if len(places) > 1 else lambda item: (get(item),)


def _wanted(columns: tuple[str, ...]) -> str:
    return f"{len(columns)} values ({', '.join(columns)})"


def _shown(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
