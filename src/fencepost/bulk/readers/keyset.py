"""Rows of a query in the order of a unique key, page after page: never by offset.

::

    keyset("SELECT id, amount FROM orders WHERE settled IS NULL AND id > :after ORDER BY id LIMIT :limit", key="id")
    keyset("SELECT region, id, amount FROM orders "
           "WHERE (region, id) > (:after_region, :after_id) ORDER BY region, id LIMIT :limit", key=("region", "id"))

Each page costs the same, however far the job has come, and rows that were written meanwhile shift nothing.

The query says where to go on (``id > :after``), in which order, and how many: all three are asked for, because without
one of them rows would be missed or read twice. Partitions get their bounds by adding to the comparison.

**Noticed** before anything of the page is written: a key that occurs twice (also where only the database takes two
texts for one, as in ``a`` and ``A``), that is NULL, or that does not compare as it is read back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.bulk.reader import Page, Position, Slice, Surroundings
from fencepost.bulk.readers.key_checks import KeyChecks, null_message
from fencepost.bulk.readers.page_query import PageQuery
from fencepost.bulk.readers.plans import estimated_rows, warn_of_slow_pages
from fencepost.bulk.readers.ranges import hashed_slices, ranked_slices, sampled_slices
from fencepost.bulk.readers.row_shape import RowShape, check_kind_of, label_of, position_of, row_type
from fencepost.bulk.reading import Reading
from fencepost.core.identity import fingerprint
from fencepost.core.positions import unpacked
from fencepost.errors import BrokenInput

__all__ = ["Keyset", "KeysetFeed", "keyset", "row_type", "slice_values"]


def keyset(query: str, *, key: str | Sequence[str]) -> Keyset:
    """Read the rows of `query` in the order of `key`: one column, or several that are unique together.

    The query names ``:after`` and ``:limit``, and may name the run's parameters, ``:window_start`` and ``:window_end``;
    with ``:part`` and ``:parts`` in it, partitions are told by them instead of by ranges of the key.
    """
    keys = tuple(key) if isinstance(key, list | tuple) else (key,)
    return Keyset(query, keys)


class Keyset:
    """A query that is read page by page."""

    needs_source = True

    def __init__(self, query: str, keys: tuple[Any, ...]) -> None:
        self.pages = PageQuery.of(query, keys)
        self.query = query.strip()
        self.keys = self.pages.keys
        self.is_hashed = "part" in self.pages.names

    def __repr__(self) -> str:
        return f"keyset({self.query!r}, key={self.keys if len(self.keys) > 1 else self.keys[0]!r})"

    @property
    def shape(self) -> str:
        """The query without regard to its spacing, and its key."""
        return fingerprint(["keyset", " ".join(self.query.split()), self.keys])

    def open(self, part: Slice, surroundings: Surroundings) -> KeysetFeed:
        """Begin to read a slice."""
        return KeysetFeed(self, part, surroundings)

    def slices(self, count: int, surroundings: Surroundings) -> list[Slice]:
        """Divide by ranges of the key, or by ``:part`` if the query has it."""
        if self.is_hashed:
            return hashed_slices(count)
        feed = self.open({}, surroundings)
        try:
            ends = [*feed.keys_between(None, None, 1), *feed.keys_between(None, None, 1, descending=True)]
            if not ends:
                return [{"expected": 0}]
            if all(type(each) is int for each in ends):
                return sampled_slices(feed.keys_between, count)
            if count == 1:
                return [_whole(self.expected({}, surroundings))]
            return ranked_slices(self.pages, feed.fetch, count)
        finally:
            feed.close()

    def expected(self, part: Slice, surroundings: Surroundings) -> int | None:
        """What the planning of the slices has estimated, or else the database's planner."""
        if "expected" in part or self.is_hashed:
            return part.get("expected")
        return estimated_rows(self.pages.all(), surroundings)

    def check(self, surroundings: Surroundings) -> None:
        """Refuse rows that have no key; warn of a plan that reads the whole table for every page."""
        if set(self.pages.names) - {"part", "parts", *surroundings.values}:
            return  # values that the partitions are given one by one: nobody knows them yet
        feed = self.open({}, surroundings)
        try:
            feed.refuse_null_keys()
            first = feed.keys_between(None, None, 1)
        finally:
            feed.close()
        if first:
            warn_of_slow_pages(self.pages, first[0], surroundings)

    def label(self, item: Any) -> str:
        """The key of a row."""
        return label_of(self.keys, item)


def _whole(expected: int | None) -> Slice:
    return {} if expected is None else {"expected": expected}


class KeysetFeed:
    """Reads the pages of one slice."""

    def __init__(self, reader: Keyset, part: Slice, surroundings: Surroundings) -> None:
        self._pages = reader.pages
        self._first = part.get("after")
        self._values = slice_values(part, surroundings)
        self._has_upto = "upto" in part
        if self._has_upto:
            self._values |= self._named("upto", part["upto"])
        self._shape = RowShape(reader.keys)
        self._checks = KeyChecks(reader.keys, self.keys_between)
        self._statements: dict[bool, str] = {}
        self._reading = Reading(surroundings.source)

    def read(self, after: Position, limit: int) -> Page:
        """Return the rows after a key. One more than asked for is read: it tells whether its key is another one."""
        after = self._first if after is None else after
        values = {**self._values, "limit": limit + 1}
        if after is not None:
            values |= self._named("after", after)
        names, rows = self._reading.fetch(self._statement(after is not None), values)
        make, key_of = self._shape.of(names)
        keys = list(map(key_of, rows))
        self._look_at(keys, limit, after)
        is_last = len(rows) <= limit
        del rows[limit:]
        return Page(items=list(map(make, rows)), position_after=lambda index: position_of(keys[index]), is_last=is_last)

    def keys_between(self, after: Any, upto: Any, limit: int, *, descending: bool = False) -> list[Any]:
        """Return the first keys behind one, or the last ones up to another; None is no bound."""
        condition = self._pages.bounds(self._reading.kind, after=after is not None, upto=upto is not None)
        values = {**self._values, "limit": limit}
        for word, key in (("after", after), ("upto", upto)):
            values |= {} if key is None else self._named(word, position_of(key))
        names, rows = self._reading.fetch(self._pages.page(condition, descending=descending), values)
        return list(map(self._shape.of(names)[1], rows))

    def fetch(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """Execute another query with the values of the run."""
        return self._reading.fetch(sql, {**self._values, **values}).rows

    def refuse_null_keys(self) -> None:
        """Look for a row whose key is NULL: no page would ever have it."""
        for place in range(len(self._pages.keys)):
            if self.fetch(self._pages.page(self._pages.is_null(place)), limit=1):
                raise BrokenInput(null_message(self._pages.keys))

    def close(self) -> None:
        """Give the connection back."""
        self._reading.close()

    def _look_at(self, keys: list[Any], limit: int, after: Position) -> None:
        behind = None if after is None else _key(after)
        self._checks.page(keys, behind)
        if keys:
            check_kind_of(keys[-1], self._pages.keys)
        if len(keys) > limit:
            self._checks.expect(keys, limit, behind)

    def _statement(self, has_after: bool) -> str:
        if has_after not in self._statements:
            condition = self._pages.bounds(self._reading.kind, after=has_after, upto=self._has_upto)
            self._statements[has_after] = self._pages.page(condition)
        return self._statements[has_after]

    def _named(self, word: str, position: Position) -> dict[str, Any]:
        return dict(zip(self._pages.marks(word), unpacked(position), strict=True))


def _key(position: Position) -> Any:
    values = unpacked(position)
    return values[0] if len(values) == 1 else tuple(values)


def slice_values(part: Slice, surroundings: Surroundings) -> dict[str, Any]:
    """Return what a query may name in a slice: the run's values, those of the slice, and its number."""
    values = {"part": part.get("part", 0), "parts": part.get("parts", 1), **surroundings.values}
    values |= {name: part[name] for name in ("part", "parts") if name in part}
    return values | {name: unpacked(value) for name, value in part.get("values", {}).items()}
