"""A query that reads one page: where it compares, orders and limits its key, and the queries derived from it.

It is checked when it is declared. The derived queries, for a later page, the bounds of a partition, the last key or the
plan, differ only in the comparison and the order. The rest is the user's own text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.bulk.sql import bare, names_in, outermost, single_select
from fencepost.errors import InvalidBulk

EXAMPLE = "SELECT id, amount FROM orders WHERE id > :after ORDER BY id LIMIT :limit"
EXAMPLE_OF_TWO = (
    "SELECT region, id, amount FROM orders WHERE (region, id) > (:after_region, :after_id) "
    "ORDER BY region, id LIMIT :limit"
)
EVERYTHING = "(1 = 1)"

_OFFSET = re.compile(r"\boffset\s+[\d:(]|\blimit\s+[\d:]\w*\s*,", re.IGNORECASE)
_LIMIT = re.compile(r"\blimit\s+:limit\s*$", re.IGNORECASE)
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
_TYPE = (
    r'["\w.]+(?:\s+(?:precision|varying))?(?:\s*\(\s*\d+(?:\s*,\s*\d+)?\s*\))?'
    r"(?:\s+with(?:out)?\s+time\s+zone)?"
)


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The parts of a query. Build it with `PageQuery.of`, which checks it."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]  # as in the comparison, possibly with the name of their table
    values: tuple[str, ...]  # the other side of the comparison: :after, possibly with a cast
    head: str  # up to the comparison
    middle: str  # from there up to ORDER BY
    ordered: tuple[str, ...]  # the columns as in ORDER BY

    @staticmethod
    def of(query: Any, keys: tuple[str, ...]) -> PageQuery:
        """Split a query into its parts. `InvalidBulk` says what is missing, and what to write instead."""
        check_keys(keys)
        text = single_select(query)
        _refuse_offset(text)
        order_at, ordered = _order(text, keys)
        found = _comparison(text[:order_at], keys)
        columns = [found.group(f"column{place}") for place in range(len(keys))]
        values = [found.group(f"value{place}") for place in range(len(keys))]
        head, middle = text[: found.start()], text[found.end() : order_at]
        _refuse_names_elsewhere(head + middle, keys)
        return PageQuery(keys, tuple(columns), tuple(values), head, middle, ordered)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters of the run that it uses."""
        return names_in(self.head + self.middle)

    @property
    def results(self) -> list[str]:
        """The key columns as SQL names in the result: with their quotes, without their table."""
        return [each.rpartition(".")[2].strip() for each in self.columns]

    def marks(self, word: str) -> list[str]:
        """Return the parameters of a bound: ``after``, or ``after_region`` and ``after_id``."""
        return [word] if len(self.keys) == 1 else [f"{word}_{name}" for name in self.keys]

    def page(self, condition: str, *, descending: bool = False) -> str:
        """Return the query for a page of the rows that match a condition on the key."""
        order = ", ".join(f"{each} DESC" if descending else each for each in self.ordered)
        return f"{self.all(condition)}ORDER BY {order} LIMIT :limit"

    def all(self, condition: str = EVERYTHING) -> str:
        """Return the query for all rows that match a condition on the key, unordered."""
        return f"{self.head}{condition}{self.middle}"

    def bounds(self, kind: str, *, after: bool, upto: bool) -> str:
        """Return the condition for the rows after a key and up to another one."""
        bounds = [self._bound(">", "after", kind)] if after else []
        if upto:
            bounds.append(self._bound("<=", "upto", kind))
        return f"({' AND '.join(bounds)})" if bounds else EVERYTHING

    def is_null(self, place: int) -> str:
        """Return the condition for the rows in which this column of the key is NULL."""
        return f"({self.columns[place]} IS NULL)"

    def _bound(self, sign: str, word: str, kind: str) -> str:
        values = [
            re.sub(r":after\w*", f":{mark}", value, count=1, flags=re.IGNORECASE)
            for value, mark in zip(self.values, self.marks(word), strict=True)
        ]
        if len(values) == 1:
            return f"{self.columns[0]} {sign} {values[0]}"
        if kind == "mysql":  # for a row comparison MySQL reads an index from its beginning, but not for this
            return _one_by_one(self.columns, values, sign)
        return f"({', '.join(self.columns)}) {sign} ({', '.join(values)})"


def _one_by_one(columns: Sequence[str], values: Sequence[str], sign: str) -> str:
    """Compare rows by comparing their columns: (a > 1 OR (a = 1 AND b > 2))."""
    (column, *columns), (value, *values) = columns, values
    if not columns:
        return f"{column} {sign} {value}"
    return f"({column} {sign[0]} {value} OR ({column} = {value} AND {_one_by_one(columns, values, sign)}))"


# -- what a query must have --------------------------------------------------------------------------------------------


def check_keys(keys: tuple[Any, ...]) -> None:
    """Refuse a key that is not one or more column names."""
    if not keys or not all(isinstance(each, str) and each.isidentifier() for each in keys):
        raise InvalidBulk(
            f"key {keys!r} must be the unique column, or columns, that order the rows, with their names in the result: "
            'key="id", or key=("region", "id")'
        )
    if len({each.lower() for each in keys}) != len(keys):
        raise InvalidBulk(f"key {keys!r} names a column twice; name each once, as in key=('region', 'id')")


def refuse_offset(text: str, instead: str) -> None:
    """Refuse OFFSET anywhere in a query."""
    if _OFFSET.search(bare(text)):
        raise InvalidBulk(
            "a reader cannot use OFFSET: each page would cost more than the one before, and rows would be "
            f"missed when others are deleted; {instead}"
        )


def _refuse_offset(text: str) -> None:
    refuse_offset(text, f"continue after the last key, as in {EXAMPLE!r}")


def _order(text: str, keys: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Return where ORDER BY begins and its columns, or refuse the query."""
    outer, named = outermost(text), ", ".join(keys)
    limit = _LIMIT.search(outer)
    if limit is None:
        raise InvalidBulk(
            f"the query must end with LIMIT :limit, which sets the size of a page; write ORDER BY "
            f"{named} LIMIT :limit, as in {EXAMPLE!r}"
        )
    places = [found.span() for found in _ORDER.finditer(outer)]
    if not places:
        raise InvalidBulk(
            f"the query has no ORDER BY, so rows would be missed or read twice; write ORDER BY {named} before its "
            f"LIMIT :limit, as in {EXAMPLE!r}"
        )
    start, end = places[-1]
    ordered = tuple(each.strip() for each in bare(text)[end : limit.start()].split(","))
    _check_order(ordered, keys)
    return start, tuple(re.sub(r"\s+asc$", "", each, flags=re.IGNORECASE) for each in ordered)


def _check_order(ordered: tuple[str, ...], keys: tuple[str, ...]) -> None:
    named = ", ".join(keys)
    if any(re.search(r"\sdesc\b", each, re.IGNORECASE) for each in ordered):
        raise InvalidBulk(
            f"the query has descending order, and a reader needs ascending order; write ORDER BY {named} LIMIT :limit "
            f"with {_wanted(keys)}: the order makes no difference to the result"
        )
    if [_name(each) for each in ordered] != [each.lower() for each in keys]:
        raise InvalidBulk(
            f"the query is ordered by {', '.join(ordered)}, and its key is {named}; write ORDER BY {named} LIMIT "
            ":limit, with the whole key and nothing else: otherwise rows would be missed or read twice"
        )


def _name(column: str) -> str:
    """Return a column of ORDER BY without its table. Words after it stay, so that it differs from the key."""
    return re.sub(r"\s+asc$", "", column.strip().lower()).rpartition(".")[2].strip(' "`')


def _comparison(text: str, keys: tuple[str, ...]) -> re.Match[str]:
    """Return the comparison of the key, which must occur once."""
    plain = bare(text)
    found = list(_compared(keys, ">").finditer(plain))
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise InvalidBulk(
            f"the query compares its key {len(found)} times, and partitions add their bounds there; compare it once, "
            f"around the rest: … FROM (…) q WHERE {_wanted(keys)} ORDER BY {', '.join(keys)} LIMIT :limit"
        )
    raise InvalidBulk(_no_comparison(plain, keys))


def _no_comparison(plain: str, keys: tuple[str, ...]) -> str:
    wanted = _wanted(keys)
    if _compared(keys, ">=").search(plain):
        return f"with >= the last row of a page would be read again on the next page; write {wanted}"
    if _compared(keys, "<=?").search(plain):
        return f"a reader needs ascending order of its key; write {wanted}, and ORDER BY {', '.join(keys)} without DESC"
    example = EXAMPLE if len(keys) == 1 else EXAMPLE_OF_TWO
    return (
        f"the query must contain {wanted} once: it is left out for the first page, and partitions add their bounds "
        f"to it; as in {example!r}"
    )


def _compared(keys: tuple[str, ...], sign: str) -> re.Pattern[str]:
    columns = [f"(?P<column{place}>{column_pattern(name)})" for place, name in enumerate(keys)]
    marks = ["after"] if len(keys) == 1 else [f"after_{name}" for name in keys]
    values = [f"(?P<value{place}>{value_pattern(mark)})" for place, mark in enumerate(marks)]
    if len(keys) == 1:
        return re.compile(rf"{columns[0]}\s*{sign}\s*{values[0]}", re.IGNORECASE)
    left, right = r"\s*,\s*".join(columns), r"\s*,\s*".join(values)
    return re.compile(rf"\(\s*{left}\s*\)\s*{sign}\s*\(\s*{right}\s*\)", re.IGNORECASE)


def column_pattern(name: str) -> str:
    """Return a pattern for a column, with optional quotes and an optional table."""
    return rf'(?<![\w$."`:])(?:["`]?[\w$]+["`]?\s*\.\s*){{0,3}}["`]?{re.escape(name)}["`]?(?![\w$"`])'


def value_pattern(mark: str) -> str:
    """Return a pattern for a parameter with an optional cast."""
    return rf"(?::{mark}\b(?:\s*::\s*{_TYPE})?|cast\s*\(\s*:{mark}\s+as\s+{_TYPE}\s*\))"


def _wanted(keys: tuple[str, ...]) -> str:
    if len(keys) == 1:
        return f"{keys[0]} > :after"
    return f"({', '.join(keys)}) > ({', '.join(f':after_{name}' for name in keys)})"


def _reserved(keys: tuple[str, ...]) -> Iterator[str]:
    yield "limit"
    for word in ("after", "upto"):
        yield word
        yield from (f"{word}_{name}" for name in keys)


def _refuse_names_elsewhere(text: str, keys: tuple[str, ...]) -> None:
    taken = [name for name in names_in(text) if name in set(_reserved(keys))]
    if taken:
        raise InvalidBulk(
            f"the query uses :{taken[0]}, which belongs to the reader, in another place; rename your own parameter, "
            f"and write {_wanted(keys)} … ORDER BY {', '.join(keys)} LIMIT :limit once"
        )
    if len({"part", "parts"} & set(names_in(text))) == 1:
        raise InvalidBulk(
            "a query that selects its partitions by number needs both :part and :parts; write id % :parts = :part"
        )
