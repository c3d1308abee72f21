"""Reads the rows of a query by ranges of an integer key, without ORDER BY and LIMIT.

::

    id_range("SELECT id, amount FROM orders WHERE settled IS NULL AND id > :after AND id <= :upto",
             key="id", of="orders")

For queries that a database executes well for a range of ids but badly in the order of ids: joins, groups. The last id
is read once and stored with the slice. Rows that are added after it are left to the next run.

**The size of a range.** If ids are dense, a range has as many numbers as a page has rows. If they are sparse, it ends
at the id that is this many rows further on, which is read from an index, so a gap of any width takes one step. If the
query filters out most rows, a range has up to eight times as many. Rows beyond a page are kept for the next one.
"""

from __future__ import annotations

import re
from typing import Any

from fencepost.bulk.reader import Page, Position, Slice, Surroundings
from fencepost.bulk.readers.key_checks import KeyChecks
from fencepost.bulk.readers.page_feed import slice_values
from fencepost.bulk.readers.page_query import (
    EVERYTHING,
    PageQuery,
    check_keys,
    column_pattern,
    refuse_offset,
    value_pattern,
)
from fencepost.bulk.readers.plans import Keyed, warn_of_slow_plan
from fencepost.bulk.readers.query_reader import QueryReader
from fencepost.bulk.readers.row_shape import RowShape, position_of
from fencepost.bulk.reading import Reading
from fencepost.bulk.sql import bare, outermost, single_select
from fencepost.errors import BrokenInput, InvalidBulk

_EXAMPLE = 'id_range("SELECT id, amount FROM orders WHERE id > :after AND id <= :upto", key="id", of="orders")'
_TABLE = re.compile(r'(?:["`]?[\w$]+["`]?\.){0,2}["`]?[\w$]+["`]?')
_NOT_HERE = re.compile(r"\b(order\s+by|limit|fetch\s+first)\b", re.IGNORECASE)
_MOST_PAGES_PER_RANGE = 8  # limits how many rows one query may return if the next range is not filtered


def id_range(query: str, *, key: str, of: str) -> IdRange:
    """Read the rows of `query` by ranges of `key`, a unique integer column of the table `of`.

    The query must contain ``id > :after AND id <= :upto``, and may use the run's parameters.
    """
    return IdRange(query, key, of)


class IdRange(QueryReader):
    """A query that is read range by range."""

    name = "id_range"

    def __init__(self, query: str, key: str, of: Any) -> None:
        if not isinstance(of, str) or not _TABLE.fullmatch(of):
            raise InvalidBulk(f"of={of!r} must name the table that {key} comes from, as in {_EXAMPLE}")
        super().__init__(_pages(query, key), query)
        self.of = of

    def __repr__(self) -> str:
        return f"id_range({self.query!r}, key={self.keys[0]!r}, of={self.of!r})"

    def open(self, part: Slice, surroundings: Surroundings) -> IdRangeFeed:
        """Begin to read a slice."""
        return IdRangeFeed(self, part, surroundings)

    def slices(self, count: int, surroundings: Surroundings) -> list[Slice]:
        """Divide by ranges of the key. The last one ends with the current last id."""
        reading = Reading(surroundings.source)
        try:
            end = self.end(reading, "max")
        finally:
            reading.close()
        slices = super().slices(count, surroundings)
        return slices if end is None else [{"upto": [end], **each} for each in slices]

    def end(self, reading: Reading, which: str) -> int | None:
        """Return the first (``min``) or last (``max``) id of the table; None if it is empty."""
        column = self.pages.results[0]
        ((found,),) = reading.fetch(f"SELECT {which}({column}) FROM {self.of}", {}).rows  # noqa: S608 - names that were checked
        if found is not None and type(found) is not int:
            raise BrokenInput(
                f"id_range needs an integer key, and {self.of}.{self.keys[0]} has {found!r}; use keyset(…) with "
                "ORDER BY and LIMIT"
            )
        return found

    def _warn(self, first: Any, surroundings: Surroundings) -> None:
        sql = self.pages.all(self.pages.bounds("", after=True, upto=True))
        values = {"part": 0, "parts": 1, **surroundings.values, "after": first, "upto": first + 1000}
        warn_of_slow_plan(sql, values, Keyed.of(sql, self.pages.columns), surroundings)


def _pages(query: Any, key: Any) -> PageQuery:
    """Return the query with one place for both bounds, and with the order that the user's query does not have."""
    check_keys((key,))
    text = single_select(query)
    refuse_offset(text, f"use the range instead, as in {_EXAMPLE}")
    extra = _NOT_HERE.search(outermost(text))
    if extra:
        raise InvalidBulk(
            f"id_range gives its query a range instead of {extra[1].upper()}: leave that out, as in {_EXAMPLE}; or "
            "use keyset(…), which has both"
        )
    pattern = rf"(?P<column>{column_pattern(key)})\s*<=\s*{value_pattern('upto')}"
    found = list(re.finditer(pattern, bare(text), re.IGNORECASE))
    if len(found) != 1:
        raise InvalidBulk(f"the query must contain {key} > :after AND {key} <= :upto once, as in {_EXAMPLE}")
    start, end = found[0].span()
    ordered = f"{text[:start]}{EVERYTHING}{text[end:]}\nORDER BY {found[0]['column']} LIMIT :limit"
    return PageQuery.of(ordered, (key,))


class IdRangeFeed:
    """Reads one slice, range by range."""

    def __init__(self, reader: IdRange, part: Slice, surroundings: Surroundings) -> None:
        self._reader = reader
        self._values = slice_values(part, surroundings)
        self._statement = reader.pages.all(reader.pages.bounds("", after=True, upto=True))
        self._shape = RowShape(reader.keys)
        self._checks = KeyChecks(reader.keys, lambda *_: [])
        self._reading = Reading(surroundings.source)
        self._start, self._end = self._ends_of(part)
        self._reached = self._start
        self._kept: list[Any] = []  # rows that were read but not returned yet: between _here and _reached
        self._here = self._reached
        self._rows_per_range = 0
        self._is_dense = True

    def _ends_of(self, part: Slice) -> tuple[int, int]:
        """Return the number before the first id of the slice, and its last id."""
        try:
            upto = part["upto"][0] if "upto" in part else self._reader.end(self._reading, "max")
            after = part["after"][0] if "after" in part else self._reader.end(self._reading, "min")
        except BaseException:
            self._reading.close()
            raise
        if upto is None or after is None:
            return 0, 0
        return (after if "after" in part else min(after, upto + 1) - 1), upto

    def read(self, after: Position, limit: int) -> Page:
        """Return the rows after an id, from as many ranges as necessary."""
        self._go_to(self._start if after is None else after[0])
        rows = self._kept
        while len(rows) < limit and self._reached < self._end:
            rows += self._range(limit)
        items, self._kept = rows[:limit], rows[limit:]
        make, keyed = self._shape.shaped
        keys = [keyed(row) for row in items]
        self._here = keys[-1] if keys else self._end
        return Page(
            items=list(map(make, items)),
            position_after=lambda index: position_of(keys[index]),
            is_last=not self._kept and self._reached >= self._end,
        )

    def close(self) -> None:
        """Return the connection to its pool."""
        self._reading.close()

    def _go_to(self, here: int) -> None:
        """Continue after an id: where the last page ended, or elsewhere."""
        if here != self._here:
            self._kept, self._here, self._reached = [], here, here

    def _range(self, limit: int) -> list[Any]:
        """Return the rows of the next range, in the order of their ids."""
        wanted = min(max(self._rows_per_range, limit), _MOST_PAGES_PER_RANGE * limit)
        after = self._reached
        upto = min(after + wanted if self._is_dense else self._id_further_on(wanted), self._end)
        names, rows = self._reading.fetch(self._statement, {**self._values, "after": after, "upto": upto})
        keyed = self._shape.of(names)[1]
        rows.sort(key=keyed)
        self._look_at([keyed(row) for row in rows], after, upto)
        self._reached = upto
        self._is_dense = len(rows) * 2 >= wanted if self._is_dense else upto - after <= wanted * 2
        self._rows_per_range = wanted * 2 if len(rows) * 4 < limit else wanted // 2 if len(rows) > limit else wanted
        return rows

    def _id_further_on(self, rows: int) -> int:
        """Return the id that is `rows` rows further on in the table, from an index only."""
        column = self._reader.pages.results[0]
        ids = f"SELECT {column} AS k FROM {self._reader.of} WHERE {column} > :after AND {column} <= :upto"  # noqa: S608 - names that were checked
        query = f"SELECT max(q.k) FROM ({ids} ORDER BY {column} LIMIT :limit) q"  # noqa: S608 - as above
        values = {"after": self._reached, "upto": self._end, "limit": rows}
        ((found,),) = self._reading.fetch(query, values).rows
        return self._end if found is None else int(found)

    def _look_at(self, keys: list[Any], after: int, upto: int) -> None:
        self._checks.page(keys, None)
        if keys and not after < keys[0] <= keys[-1] <= upto:
            raise BrokenInput(
                f"the query returned rows outside its range ({self._reader.keys[0]} {keys[0]} to {keys[-1]}, "
                f"not {after} to {upto}); put parentheses around an OR in its WHERE"
            )
