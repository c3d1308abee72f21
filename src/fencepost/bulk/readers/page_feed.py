"""Reads the pages of a query in one slice, and checks the keys of each page before returning it."""

from __future__ import annotations

from typing import Any

from fencepost.bulk.reader import Page, Position, Slice, Surroundings
from fencepost.bulk.readers.key_checks import KeyChecks, null_message
from fencepost.bulk.readers.page_query import PageQuery
from fencepost.bulk.readers.row_shape import RowShape, check_kind_of, key_of, position_of
from fencepost.bulk.reading import Reading, Rows
from fencepost.core.positions import unpacked
from fencepost.errors import BrokenInput


class PageFeed:
    """Reads the pages of one slice."""

    def __init__(self, pages: PageQuery, part: Slice, surroundings: Surroundings) -> None:
        self._pages = pages
        self._first = part.get("after")
        self._values = slice_values(part, surroundings)
        self._has_upto = "upto" in part
        if self._has_upto:
            self._values |= self._named("upto", part["upto"])
        self._shape = RowShape(pages.keys)
        self._checks = KeyChecks(pages.keys, self.keys_between)
        self._statements: dict[bool, str] = {}
        self._reading = Reading(surroundings.source)

    def read(self, after: Position, limit: int) -> Page:
        """Return a page of rows after a key."""
        keys, rows, is_last = self.keyed_rows(after, limit)
        make = self._shape.shaped[0]
        return Page(items=list(map(make, rows)), position_after=lambda index: position_of(keys[index]), is_last=is_last)

    def keyed_rows(self, after: Position, limit: int) -> tuple[list[Any], list[tuple[Any, ...]], bool]:
        """Return keys and rows after a key, and whether they are the last ones.

        One more row than `limit` is read, to check that its key differs. Its key is also returned.
        """
        after = self._first if after is None else after
        names, rows = self._reading.fetch(*self._question(after, limit))
        keys = list(map(self._shape.of(names)[1], rows))
        self._look_at(keys, limit, after)
        is_last = len(rows) <= limit
        del rows[limit:]
        return keys, rows, is_last

    @property
    def can_ask(self) -> bool:
        """Whether the query for a page can be sent before the page is read."""
        return self._reading.can_ask

    def ask(self, after: Position, limit: int) -> None:
        """Send the query for the next page."""
        self._reading.ask(*self._question(after, limit))

    def _question(self, after: Position, limit: int) -> tuple[str, dict[str, Any]]:
        values = {**self._values, "limit": limit + 1}
        if after is not None:
            values |= self._named("after", after)
        return self._statement(after is not None), values

    def keys_between(self, after: Any, upto: Any, limit: int, *, descending: bool = False, **more: Any) -> list[Any]:
        """Return the first keys after one, or the last keys up to another; None is no bound. `more`: other values."""
        condition = self._pages.bounds(self._reading.kind, after=after is not None, upto=upto is not None)
        values = {**self._values, **more, "limit": limit}
        for word, key in (("after", after), ("upto", upto)):
            values |= {} if key is None else self._named(word, position_of(key))
        names, rows = self._reading.fetch(self._pages.page(condition, descending=descending), values)
        return list(map(self._shape.of(names)[1], rows))

    @property
    def kind(self) -> str:
        """The kind of database."""
        return self._reading.kind

    def fetch(self, sql: str, **values: Any) -> Rows:
        """Execute another query with the values of the run."""
        return self._reading.fetch(sql, {**self._values, **values})

    def refuse_null_keys(self) -> None:
        """Raise if a row has NULL in its key, because no page would include it."""
        for place, name in enumerate(self._pages.keys):
            names, rows = self.fetch(self._pages.page(self._pages.is_null(place)), limit=1)
            if not rows:
                continue
            key = self._shape.of(names)[1](rows[0])
            if None not in (key if isinstance(key, tuple) else (key,)):
                raise BrokenInput(
                    f"the query returned {name} {key!r} when only rows with NULL were selected, so its condition does "
                    "not depend on the key alone. Put parentheses around an OR in its WHERE, and a UNION into an "
                    f"inner query: … FROM (…) q WHERE {name} > :after …"
                )
            raise BrokenInput(null_message(self._pages.keys))

    def close(self) -> None:
        """Return the connection to its pool."""
        self._reading.close()

    def _look_at(self, keys: list[Any], limit: int, after: Position) -> None:
        behind = None if after is None else key_of(after)
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


def slice_values(part: Slice, surroundings: Surroundings) -> dict[str, Any]:
    """Return the values of a query's parameters in a slice: those of the run and of the slice, and its number."""
    values = {"part": part.get("part", 0), "parts": part.get("parts", 1), **surroundings.values}
    values |= {name: part[name] for name in ("part", "parts") if name in part}
    return values | {name: unpacked(value) for name, value in part.get("values", {}).items()}
