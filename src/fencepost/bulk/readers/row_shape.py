"""Rows as items: named tuples, and the place of the key in them."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

from fencepost.bulk.reader import Position
from fencepost.core.positions import packed, unpacked
from fencepost.errors import BrokenInput

Shaped = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""A function that makes an item from a row, and one that returns its key: one value, or a tuple of several."""


class RowShape:
    """The columns that a query returns. Functions are made anew only when they change."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._names: tuple[str, ...] = ()
        self._shaped: Shaped | None = None

    def of(self, names: tuple[str, ...]) -> Shaped:
        """Return the functions for rows with these columns. Each key column must occur exactly once."""
        if self._shaped is None or self._names != names:
            self._shaped = (partial(tuple.__new__, row_type(names)), itemgetter(*self._places(names)))
            self._names = names
        return self._shaped

    @property
    def shaped(self) -> Shaped:
        """The functions for the rows that were read last."""
        return (tuple, tuple) if self._shaped is None else self._shaped

    def _places(self, names: tuple[str, ...]) -> list[int]:
        lowered = [name.lower() for name in names]
        for key in self._keys:
            if lowered.count(key.lower()) != 1:
                raise BrokenInput(_missing(key, names) if key.lower() not in lowered else _twice(key, names))
        return [lowered.index(key.lower()) for key in self._keys]


def _missing(key: str, names: tuple[str, ...]) -> str:
    return (
        f"the query does not return its key {key}, which is the position to continue from; it returns "
        f"{', '.join(names)}: add {key} to its columns"
    )


def _twice(key: str, names: tuple[str, ...]) -> str:
    return (
        f"the query returns two columns named {key}, its key; it returns {', '.join(names)}: leave one out, "
        f"or rename it, as in AS other_{key}"
    )


@lru_cache(maxsize=256)
def row_type(names: tuple[str, ...]) -> Any:
    """Return a named tuple type for rows of a query. A column without a usable name has only its number."""
    return namedtuple("Row", names, rename=True)


def position_of(key: Any) -> Position:
    """Return the position after a key."""
    return packed(key if isinstance(key, tuple) else (key,))


def key_of(position: Position) -> Any:
    """Return the key that a position is after: one value, or a tuple of several."""
    values = unpacked(position)
    return values[0] if len(values) == 1 else tuple(values)


def check_kind_of(key: Any, names: tuple[str, ...]) -> None:
    """Refuse a key that a checkpoint cannot store."""
    try:
        position_of(key)
    except TypeError as error:
        raise BrokenInput(
            f"the key {', '.join(names)} cannot be stored: {error}; compare and return it as text, as in "
            f"CAST({names[0]} AS text) AS {names[0]}_text in an inner query, and {names[0]}_text > :after around it"
        ) from error


def label_of(keys: tuple[str, ...], item: Any) -> str:
    """Return the key of a row as its label. The case of the column names does not matter."""
    fields = {name.lower(): name for name in getattr(item, "_fields", ())}
    values = [getattr(item, fields.get(name.lower(), name), "?") for name in keys]
    return ", ".join(f"{name}={value}" for name, value in zip(keys, values, strict=True))
