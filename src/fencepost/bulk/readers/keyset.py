"""Rows of a query in the order of a unique key, page after page: never by offset.

::

    keyset("SELECT id, amount FROM orders WHERE settled IS NULL AND id > :after ORDER BY id LIMIT :limit", key="id")
    keyset("SELECT region, id, amount FROM orders "
           "WHERE (region, id) > (:after_region, :after_id) ORDER BY region, id LIMIT :limit", key=("region", "id"))

Each page costs the same, however far the job has come, and rows that were written meanwhile shift nothing.

The query says where to go on (``id > :after``), in which order, and how many: all three are asked for, because without
one of them rows would be missed or read twice. Partitions get their bounds by adding to the comparison. A key that
occurs twice is noticed before anything of its page is written.
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import islice
from operator import eq, itemgetter
from typing import Any

from fencepost.bulk.reader import Page, Position, Slice, Surroundings
from fencepost.bulk.readers.plans import warn_of_slow_plan
from fencepost.bulk.readers.ranges import hashed_slices, sampled_slices
from fencepost.bulk.reading import Reading
from fencepost.bulk.sql import bare, changed, names_in
from fencepost.core.identity import fingerprint
from fencepost.core.positions import packed, unpacked
from fencepost.errors import BrokenInput, InvalidBulk

_EXAMPLE = "SELECT id, amount FROM orders WHERE id > :after ORDER BY id LIMIT :limit"
_LIMIT = re.compile(r"\blimit\s+:limit\s*;?\s*$", re.IGNORECASE)
_OFFSET = re.compile(r"\boffset\b", re.IGNORECASE)
_ORDER = re.compile(r"\border\s+by\s+(?P<keys>.+?)\s+limit\s+:limit\s*;?\s*$", re.IGNORECASE | re.DOTALL)


def keyset(query: str, *, key: str | Sequence[str]) -> Keyset:
    """Read the rows of `query` in the order of `key`: one column, or several that are unique together.

    The query names ``:after`` and ``:limit``, and may name the run's parameters, ``:window_start`` and ``:window_end``;
    with ``:part`` and ``:parts`` in it, partitions are told by them instead of by ranges of the key.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    return Keyset(query, keys)


class Keyset:
    """A query that is read page by page."""

    needs_source = True

    def __init__(self, query: str, keys: tuple[str, ...]) -> None:
        _check_keys(keys)
        self.query = query.strip().rstrip(";")
        self.keys = keys
        self._comparison = _comparison(keys)
        self._check_query()
        self.is_hashed = {"part", "parts"} <= set(names_in(self.query))

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
        return sampled_slices(self, count, surroundings)

    def expected(self, part: Slice, surroundings: Surroundings) -> int | None:
        """What the planning of the slices has estimated."""
        return part.get("expected")

    def check(self, surroundings: Surroundings) -> None:
        """Warn of a plan that reads the whole table for every page."""
        warn_of_slow_plan(self, surroundings)

    def label(self, item: Any) -> str:
        """The key of a row."""
        values = [getattr(item, name, "?") for name in self.keys]
        return ", ".join(f"{name}={value}" for name, value in zip(self.keys, values, strict=True))

    # -- the query, for a page at the beginning or further on, with an upper bound or without -----------------------

    def statement(self, *, has_after: bool, has_upto: bool) -> str:
        """Return the query for a page."""
        bounds = [self._bound(">", "after")] if has_after else []
        if has_upto:
            bounds.append(self._bound("<=", "upto"))
        condition = f"({' AND '.join(bounds)})" if bounds else "(1 = 1)"
        return changed(self.query, lambda text: self._comparison.sub(condition.replace("\\", r"\\"), text))

    def parameters(self, word: str, position: Position) -> dict[str, Any]:
        """Return the parameters of a bound."""
        values = unpacked(position)
        return dict(zip(self._marks(word), values, strict=True))

    def _bound(self, sign: str, word: str) -> str:
        marks = [f":{mark}" for mark in self._marks(word)]
        columns = self._columns()
        if len(columns) == 1:
            return f"{columns[0]} {sign} {marks[0]}"
        return f"({', '.join(columns)}) {sign} ({', '.join(marks)})"

    def _marks(self, word: str) -> list[str]:
        return [word] if len(self.keys) == 1 else [f"{word}_{name}" for name in self.keys]

    def _columns(self) -> list[str]:
        """Return the columns as the comparison spells them, perhaps with the name of their table."""
        found = self._comparison.search(bare(self.query))
        if found is None:
            raise InvalidBulk(f"{self!r} does not compare its key")
        return [each.strip() for each in found.group("columns").split(",")]

    # -- what a query must have ----------------------------------------------------------------------------------------

    def _check_query(self) -> None:
        text = bare(self.query)
        named = ", ".join(self.keys)
        if _OFFSET.search(text):
            raise InvalidBulk(
                "a reader does not read by OFFSET: each page would cost more than the one before, and rows would be "
                f"missed when others are deleted; go on after the last key, as in {_EXAMPLE!r}"
            )
        order = _ORDER.search(text)
        if not _LIMIT.search(text):
            raise InvalidBulk(f"the query must end with LIMIT :limit, so that a page has a size; as in {_EXAMPLE!r}")
        if order is None or _names(order.group("keys")) != [each.lower() for each in self.keys]:
            raise InvalidBulk(
                f"the query must have ORDER BY {named} before its LIMIT, ascending, the whole key and nothing else: "
                f"rows would be missed or read twice without it; as in {_EXAMPLE!r}"
            )
        if len(self._comparison.findall(text)) != 1:
            raise InvalidBulk(
                f"the query must say once where to go on, as {self._wanted()}; it is left out of the first page, and "
                "partitions add their bounds to it"
            )

    def _wanted(self) -> str:
        if len(self.keys) == 1:
            return f"{self.keys[0]} > :after"
        return f"({', '.join(self.keys)}) > ({', '.join(f':after_{name}' for name in self.keys)})"


def _check_keys(keys: tuple[Any, ...]) -> None:
    if not keys or not all(isinstance(each, str) and each.isidentifier() for each in keys):
        raise InvalidBulk(f"key {keys!r} must name the column, or the columns, that order the rows and are unique")
    if len(set(keys)) != len(keys):
        raise InvalidBulk(f"key {keys!r} names a column twice")


def _comparison(keys: tuple[str, ...]) -> re.Pattern[str]:
    columns = [rf'(?:["`\w]+\.)?["`]?{re.escape(name)}["`]?' for name in keys]
    if len(keys) == 1:
        return re.compile(rf"(?P<columns>{columns[0]})\s*>\s*:after\b", re.IGNORECASE)
    left = r"\s*,\s*".join(columns)
    right = r"\s*,\s*".join(f":after_{re.escape(name)}" for name in keys)
    return re.compile(rf"\(\s*(?P<columns>{left})\s*\)\s*>\s*\(\s*{right}\s*\)", re.IGNORECASE)


def _names(order: str) -> list[str]:
    """Return the columns of an ORDER BY without their tables; one that is descending keeps the word, and so differs."""
    names = []
    for each in order.split(","):
        words = each.strip().lower().removesuffix(" asc").split()
        names.append(" ".join(words).rpartition(".")[2].strip('"`'))
    return names


class KeysetFeed:
    """Reads the pages of one slice."""

    def __init__(self, reader: Keyset, part: Slice, surroundings: Surroundings) -> None:
        self._reader = reader
        self._part = part
        self._values = {"part": 0, "parts": 1, **surroundings.values}
        self._values |= {name: part[name] for name in ("part", "parts") if name in part}
        self._values |= {name: unpacked(value) for name, value in part.get("values", {}).items()}
        self._reading = Reading(surroundings.source)
        self._row: tuple[tuple[str, ...], Callable[[Any], Any], Callable[[Any], Any]] | None = None

    def read(self, after: Position, limit: int) -> Page:
        """Return the rows after a key. One more than asked for is read: it tells whether its key is another one."""
        after = self._part.get("after") if after is None else after
        upto = self._part.get("upto")
        reader = self._reader
        values = {**self._values, "limit": limit + 1}
        if after is not None:
            values |= reader.parameters("after", after)
        if upto is not None:
            values |= reader.parameters("upto", upto)
        try:
            names, rows = self._reading.fetch(
                reader.statement(has_after=after is not None, has_upto=upto is not None), values
            )
        except KeyError as error:
            raise InvalidBulk(f"the query names :{error.args[0]}, which is no parameter of this run") from None
        return self._page(names, rows, limit)

    def _page(self, names: tuple[str, ...], rows: list[tuple[Any, ...]], limit: int) -> Page:
        make, key_of = self._shaped(names)
        keys = list(map(key_of, rows))
        self._check(keys)
        has_more = len(rows) > limit
        if has_more:
            del rows[limit:]
        is_single = len(self._reader.keys) == 1
        return Page(
            items=list(map(make, rows)),
            position_after=lambda index: packed((keys[index],) if is_single else keys[index]),
            is_last=not has_more,
        )

    def _shaped(self, names: tuple[str, ...]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        if self._row is None or self._row[0] != names:
            self._row = (names, partial(tuple.__new__, row_type(names)), itemgetter(*self._places(names)))
        return self._row[1], self._row[2]

    def _places(self, names: tuple[str, ...]) -> list[int]:
        lowered = [name.lower() for name in names]
        missing = [key for key in self._reader.keys if key.lower() not in lowered]
        if missing:
            raise InvalidBulk(
                f"the query does not return its key {', '.join(missing)}, so nobody would know where to go on; it "
                f"returns {', '.join(names)}"
            )
        return [lowered.index(key.lower()) for key in self._reader.keys]

    def _check(self, keys: list[Any]) -> None:
        """Refuse a key that is not unique, or missing: the rows behind it would be passed over."""
        if any(map(eq, keys, islice(keys, 1, None))):
            twice = next(one for one, other in zip(keys, islice(keys, 1, None), strict=False) if one == other)
            raise BrokenInput(
                f"the key {', '.join(self._reader.keys)} is not unique: {twice!r} occurs twice. Rows would be missed "
                "at the end of a page; add a column to the key, in the query and in key="
            )
        for key in (keys[0], keys[-1]) if keys else ():
            if key is None or (isinstance(key, tuple) and None in key):
                raise BrokenInput(
                    f"the key {', '.join(self._reader.keys)} is NULL in some row, and nothing comes after NULL; "
                    "leave such rows out of the query, or take another key"
                )

    def close(self) -> None:
        """Give the connection back."""
        self._reading.close()


@lru_cache(maxsize=256)
def row_type(names: tuple[str, ...]) -> Any:
    """Return a tuple with names, for rows of a query; a column without a usable name has only its number."""
    return namedtuple("Row", names, rename=True)
