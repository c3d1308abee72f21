"""Rows as items: tuples whose columns have names, and where the key is in them."""

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
"""What makes an item of a row, and what takes the key out of it: one value, or a tuple of several."""


class RowShape:
    """Which columns a query returns; looked at again only when they change."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._names: tuple[str, ...] = ()
        self._shaped: Shaped | None = None

    def of(self, names: tuple[str, ...]) -> Shaped:
        """Return how rows of these columns are taken apart; refused if the key is not among them, once."""
        if self._shaped is None or self._names != names:
            self._shaped = (partial(tuple.__new__, row_type(names)), itemgetter(*self._places(names)))
            self._names = names
        return self._shaped

    @property
    def shaped(self) -> Shaped:
        """How the rows were taken apart that were looked at last."""
        return (tuple, tuple) if self._shaped is None else self._shaped

    def _places(self, names: tuple[str, ...]) -> list[int]:
        lowered = [name.lower() for name in names]
        for key in self._keys:
            if lowered.count(key.lower()) != 1:
                raise BrokenInput(_missing(key, names) if key.lower() not in lowered else _twice(key, names))
        return [lowered.index(key.lower()) for key in self._keys]


def _missing(key: str, names: tuple[str, ...]) -> str:
    return (
        f"the query does not return its key {key}, so nobody would know where to go on; it returns {', '.join(names)}: "
        f"add {key} to its columns"
    )


def _twice(key: str, names: tuple[str, ...]) -> str:
    return (
        f"the query returns two columns that are called {key}, its key; it returns {', '.join(names)}: leave one out, "
        f"or call it otherwise, as in AS other_{key}"
    )


@lru_cache(maxsize=256)
def row_type(names: tuple[str, ...]) -> Any:
    """Return a tuple with names, for rows of a query; a column without a usable name has only its number."""
    return namedtuple("Row", names, rename=True)


def position_of(key: Any) -> Position:
    """Return the position after a key."""
    return packed(key if isinstance(key, tuple) else (key,))


def key_of(position: Position) -> Any:
    """Return the key that a position is after: one value, or a tuple of several."""
    values = unpacked(position)
    return values[0] if len(values) == 1 else tuple(values)


def check_kind_of(key: Any, names: tuple[str, ...]) -> None:
    """Refuse a key that no checkpoint can keep."""
    try:
        position_of(key)
    except TypeError as error:
        raise BrokenInput(
            f"the key {', '.join(names)} cannot be gone on from: {error}; compare and return it as a text, as in "
            f"CAST({names[0]} AS text) AS {names[0]}_text in an inner query, and {names[0]}_text > :after around it"
        ) from error


def label_of(keys: tuple[str, ...], item: Any) -> str:
    """Name a row by its key, whichever case the database has given to the names of its columns."""
    fields = {name.lower(): name for name in getattr(item, "_fields", ())}
    values = [getattr(item, fields.get(name.lower(), name), "?") for name in keys]
    return ", ".join(f"{name}={value}" for name, value in zip(keys, values, strict=True))
