"""Reads first the keys of a page, from an index only, and then the rows of these keys.

::

    covering(keys="SELECT id FROM orders WHERE status = 'paid' AND id > :after ORDER BY id LIMIT :limit",
             rows="SELECT id, amount, customer FROM orders WHERE id IN (:keys)", key="id")

For wide rows, and for queries that are fast only while they use nothing but an index, here one on (status, id).

The order is that of the keys. A row that was deleted before the second query, or that the second query leaves out, was
not read and is not counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from fencepost.bulk.reader import Page, Position, Slice, Surroundings
from fencepost.bulk.readers.page_feed import PageFeed
from fencepost.bulk.readers.page_query import PageQuery, column_pattern, refuse_offset
from fencepost.bulk.readers.query_reader import QueryReader
from fencepost.bulk.readers.row_shape import RowShape, position_of
from fencepost.bulk.sql import bare, outermost, single_select
from fencepost.errors import BrokenInput, InvalidBulk

_EXAMPLE = "SELECT id, amount FROM orders WHERE id IN (:keys)"
_LIMIT = re.compile(r"\blimit\b", re.IGNORECASE)
_MOST_KEYS = 10_000  # SQLite allows 32,766 parameters


def covering(*, keys: str, rows: str, key: str) -> Covering:
    """Read pages of `key` with the query `keys`, and their rows with the query `rows`, which has ``id IN (:keys)``."""
    return Covering(keys, rows, key)


class Covering(QueryReader):
    """A reader with two queries: one for pages of keys, and one for the rows of a page."""

    name = "covering"

    def __init__(self, keys: str, rows: str, key: Any) -> None:
        if not isinstance(key, str):
            raise InvalidBulk(f"covering needs a key of one column, as in key='id', not {key!r}; else use keyset(…)")
        super().__init__(PageQuery.of(keys, (key,)), keys)
        self.row_query = single_select(rows, what="rows=")
        self._keys_at = _keys_at(self.row_query, key)

    def __repr__(self) -> str:
        return f"covering(keys={self.query!r}, rows={self.row_query!r}, key={self.keys[0]!r})"

    def open(self, part: Slice, surroundings: Surroundings) -> CoveringFeed:
        """Begin to read a slice."""
        return CoveringFeed(self, part, surroundings)

    def rows_of(self, keys: Sequence[Any], kind: str) -> tuple[str, dict[str, Any]]:
        """Return the query for the rows of some keys, for a kind of database, and its values."""
        start, end = self._keys_at
        head, tail = self.row_query[:start], self.row_query[end:]
        if kind == "postgresql":
            return f"{head}= ANY(:keys){tail}", {"keys": list(keys)}
        if kind == "mysql":
            return f"{head}IN :keys{tail}", {"keys": tuple(keys)}
        names = _names(len(keys))
        return f"{head}IN (:{', :'.join(names)}){tail}", dict(zip(names, keys, strict=True))


@lru_cache(maxsize=16)
def _names(count: int) -> tuple[str, ...]:
    return tuple(f"key_{place}" for place in range(count))


def _keys_at(text: str, key: str) -> tuple[int, int]:
    """Return where in the query the keys are."""
    refuse_offset(text, f"select the rows by their keys, as in {_EXAMPLE!r}")
    found = list(re.finditer(rf"{column_pattern(key)}\s+(in\s*\(\s*:keys\s*\))", bare(text), re.IGNORECASE))
    if len(found) != 1:
        raise InvalidBulk(f"rows= must contain {key} IN (:keys) once, as in {_EXAMPLE!r}")
    if _LIMIT.search(outermost(text)):
        raise InvalidBulk("rows= has a LIMIT, so rows could be missed; only keys= needs one")
    return found[0].span(1)


class CoveringFeed:
    """Reads the pages of one slice."""

    def __init__(self, reader: Covering, part: Slice, surroundings: Surroundings) -> None:
        self._reader = reader
        self._shape = RowShape(reader.keys)
        self._pages = PageFeed(reader.pages, part, surroundings)

    def read(self, after: Position, limit: int) -> Page:
        """Return the rows after a key; if all rows of a page were deleted, those of the next page."""
        while True:
            keys, there, is_last = self._pages.keyed_rows(after, limit)
            wanted = keys[: len(there)]
            found = self._found(wanted)
            if found or is_last:
                return self._page([key for key in wanted if key in found], found, is_last=is_last)
            after = position_of(wanted[-1])

    def close(self) -> None:
        """Return the connection to its pool."""
        self._pages.close()

    def _found(self, wanted: list[Any]) -> dict[Any, tuple[Any, ...]]:
        """Return the rows that exist, by their keys."""
        found: dict[Any, tuple[Any, ...]] = {}
        for some in _groups(wanted):
            sql, values = self._reader.rows_of(some, self._pages.kind)
            names, rows = self._pages.fetch(sql, **values)
            keyed = self._shape.of(names)[1]
            before = len(found)
            found.update((keyed(row), row) for row in rows)
            if len(found) - before != len(rows):
                raise BrokenInput(_twice(self._reader.keys[0], [keyed(row) for row in rows]))
        return found

    def _page(self, keys: list[Any], found: dict[Any, tuple[Any, ...]], *, is_last: bool) -> Page:
        make = self._shape.shaped[0]
        return Page(
            items=[make(found[key]) for key in keys],
            position_after=lambda index: position_of(keys[index]),
            is_last=is_last,
        )


def _groups(keys: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(keys), _MOST_KEYS):
        yield keys[start : start + _MOST_KEYS]


def _twice(name: str, keys: list[Any]) -> str:
    twice = next(key for key, times in Counter(keys).items() if times > 1)
    return (
        f"rows= has more than one row for the {name} {twice!r}, so the key is not unique; do not join tables that "
        "have several rows per key, or use keyset(…) with a key of several columns"
    )
