"""Ranges of a key for partitions, about even; and with them, about how many rows there are.

Keys that are whole numbers are sampled: a look at both ends of a stretch tells where it begins and ends, and how dense
it is there; the stretch that may hold most is halved, and so on, a few dozen times, until that changes little. Each
look reads a few rows from an index. Nothing is counted, and gaps cost nothing. Other keys are gone through once, in the
database.

**Promises.** The slices of a plan are disjoint and together the whole, however badly they were estimated: their bounds
are numbers, or keys, that rise. The first has no lower bound and the last no upper one.

**Not promised.** That they are even where keys lie in hundreds of clusters with wide gaps between them; that is
noticed, and then nothing is said of how many rows to expect.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from fencepost.bulk.reader import Slice
from fencepost.core.positions import packed
from fencepost.errors import BrokenInput

if TYPE_CHECKING:
    from fencepost.bulk.readers.page_query import PageQuery
    from fencepost.bulk.reading import Rows

KEYS_PER_LOOK = 24
LEAST_HALVINGS = (8, 48)  # where only the size matters; for several slices two for each, up to so many
MOST_HALVINGS = 96
_SETTLED_AFTER = 6  # halvings in a row that found what was expected, and changed the whole by less than this share
_SETTLED_SHARE = 0.02
_MIDDLE = (617, 1361)  # not quite, because keys may well lie in clusters at even distances
_SURPRISE = 4  # so many times sparser in the middle than at the ends


class KeyQuery(Protocol):
    """The first keys behind one, or the last ones up to another; None is no bound."""

    def __call__(self, after: Any, upto: Any, limit: int, *, descending: bool = False) -> list[Any]:
        """Look."""
        ...


def hashed_slices(count: int) -> list[Slice]:
    """Return slices that are told by a number out of several, which the query names."""
    return [{"part": number, "parts": count} for number in range(count)]


# -- whole numbers -----------------------------------------------------------------------------------------------------


def sampled_slices(look: KeyQuery, count: int) -> list[Slice]:
    """Return up to `count` slices of a key that is a whole number."""
    head, tail = look(None, None, KEYS_PER_LOOK), look(None, None, KEYS_PER_LOOK, descending=True)
    if not head or not tail:
        return [{"expected": 0}]
    sample = RangeSample(look, Stratum(sorted(head), sorted(tail)))
    sample.refine(min(max(LEAST_HALVINGS[0], 2 * count), LEAST_HALVINGS[1]))
    curve = Curve.of(sample.strata)
    bounds = curve.bounds(count)
    return _slices([[each] for each in bounds], curve.sizes(bounds) if sample.is_settled else None)


@dataclass(frozen=True)
class Stratum:
    """A stretch of keys: its first ones and its last ones, which are all of them if they meet."""

    head: Sequence[int]
    tail: Sequence[int]

    @cached_property
    def is_known(self) -> bool:
        """Whether nothing lies between its first keys and its last ones."""
        return self.head[-1] >= self.tail[0] - 1

    @cached_property
    def between(self) -> int:
        """About how many keys lie between those that were seen."""
        gap = self.tail[0] - self.head[-1] - 1
        return 0 if self.is_known else max(1, round(gap * (_density(self.head) + _density(self.tail)) / 2))

    @cached_property
    def most(self) -> float:
        """How many there would be if it were as dense everywhere as at its denser end."""
        gap = self.tail[0] - self.head[-1] - 1
        return 0.0 if self.is_known else gap * max(_density(self.head), _density(self.tail))

    def is_surprised_by(self, one: Stratum, other: Stratum) -> bool:
        """Whether it is much sparser where its halves meet than its ends made believe."""
        width = other.head[-1] - one.tail[0] + 1
        return (len(one.tail) + len(other.head)) * _SURPRISE < width * (_density(self.head) + _density(self.tail)) / 2

    def halves(self, look: KeyQuery) -> tuple[Stratum, Stratum]:
        """Divide what lies between in two, and look what is there."""
        middle = self.head[-1] + (self.tail[0] - self.head[-1]) * _MIDDLE[0] // _MIDDLE[1]
        last = look(self.head[0], middle, KEYS_PER_LOOK, descending=True)
        first = look(middle, self.tail[-1], KEYS_PER_LOOK)
        # Rows come and go meanwhile: where none are left, what was seen before still stands for the stretch.
        return Stratum(self.head, sorted(last) or self.head), Stratum(sorted(first) or self.tail, self.tail)


def _density(keys: Sequence[int]) -> float:
    return min(1.0, (len(keys) - 1) / max(1, keys[-1] - keys[0])) if len(keys) > 1 else 1.0


class RangeSample:
    """Stretches in the order of their keys, more and more of them."""

    def __init__(self, look: KeyQuery, whole: Stratum) -> None:
        self._look = look
        self._settled = 0  # halvings in a row that have told nothing new
        self.strata = [whole]

    @property
    def is_settled(self) -> bool:
        """Whether to look further would probably change little."""
        return self._settled >= _SETTLED_AFTER

    def refine(self, least: int) -> None:
        """Halve at least so many times, and then until it is settled, within reason."""
        for number in range(MOST_HALVINGS):
            if number >= least and self.is_settled:
                return
            if not self._halve():
                self._settled = _SETTLED_AFTER
                return

    def _halve(self) -> bool:
        """Halve the stretch that may hold most; False if everything is known."""
        place = max(range(len(self.strata)), key=lambda number: self.strata[number].most)
        if self.strata[place].is_known:
            return False
        rows, halved = self._rows, self.strata[place]
        one, other = halved.halves(self._look)
        self.strata[place : place + 1] = one, other
        is_new = abs(self._rows - rows) > _SETTLED_SHARE * rows or halved.is_surprised_by(one, other)
        self._settled = 0 if is_new else self._settled + 1
        return True

    @property
    def _rows(self) -> int:
        return sum(each.between for each in self.strata) + KEYS_PER_LOOK * (len(self.strata) + 1)


@dataclass(frozen=True, slots=True)
class Curve:
    """How many rows there are up to a key: points that rise in both, straight lines between them."""

    keys: list[int]
    rows: list[int]

    @staticmethod
    def of(strata: Sequence[Stratum]) -> Curve:
        """Join what was seen and what was estimated."""
        curve = Curve([strata[0].head[0] - 1], [0])
        for stratum in strata:
            for key in stratum.head:
                curve._add(key, 1)
            curve._add(stratum.tail[0] - 1, stratum.between)
            for key in stratum.tail:
                curve._add(key, 1)
        return curve

    def _add(self, key: int, rows: int) -> None:
        if key > self.keys[-1]:
            self.keys.append(key)
            self.rows.append(self.rows[-1] + rows)

    def bounds(self, count: int) -> list[int]:
        """Return the keys that divide it into `count` parts of one size, fewer if there are fewer rows."""
        total = self.rows[-1]
        wanted = dict.fromkeys(-(-number * total // count) for number in range(1, count))
        return list(dict.fromkeys(self._key_at(rows) for rows in wanted if rows < total))

    def sizes(self, bounds: Sequence[int]) -> list[int]:
        """Return how many rows there are between each two bounds, and before the first and behind the last."""
        upto = [0, *(self._rows_upto(key) for key in bounds), self.rows[-1]]
        return [more - less for less, more in pairwise(upto)]

    def _key_at(self, rows: int) -> int:
        place = bisect_left(self.rows, rows)
        return _between(self.rows, self.keys, place, rows)

    def _rows_upto(self, key: int) -> int:
        place = bisect_left(self.keys, key)
        return _between(self.keys, self.rows, place, key)


def _between(known: list[int], wanted: list[int], place: int, value: int) -> int:
    """Return the point on the line that ends at a place."""
    if known[place] == value:
        return wanted[place]
    before, after = place - 1, place
    run, rise = known[after] - known[before], wanted[after] - wanted[before]
    return wanted[before] + (value - known[before]) * rise // run


# -- any other key -----------------------------------------------------------------------------------------------------

Fetch = Callable[[str], "Rows"]


def ranked_slices(pages: PageQuery, fetch: Fetch, count: int) -> list[Slice]:
    """Return up to `count` slices of any key, by one pass over it in the database."""
    try:
        rows = fetch(_ranking(pages, count)).rows
    except BrokenInput:
        raise
    except Exception as error:
        raise BrokenInput(
            f"the query cannot be divided by ranges of its key {', '.join(pages.keys)}: {error}. Return each column "
            "once; or say which rows a partition has by naming :part and :parts, as in id % :parts = :part"
        ) from error
    numbers = [0, *(row[-1] for row in rows)]
    sizes = [more - less for less, more in pairwise(numbers)]
    return _slices([packed(row[:-1]) for row in rows[:-1]], sizes)


def _ranking(pages: PageQuery, count: int) -> str:
    """Select the last key of each slice, with the number of rows up to it; the very last key is that of the last."""
    keys = ", ".join(f"q.{key}" for key in pages.results)
    ranked = f"SELECT {keys}, row_number() OVER (ORDER BY {keys}) AS fp_n, count(*) OVER () AS fp_all"
    names = ", ".join(f"r.{key}" for key in pages.results)
    # A row ends a slice where the number of the slice that it would be in, n * count / all, has just gone up.
    return (
        f"SELECT {names}, r.fp_n FROM ({ranked} FROM ({pages.all()}) q) r "  # noqa: S608 - the user's own query
        f"WHERE (r.fp_n * {int(count)}) % r.fp_all < {int(count)} ORDER BY r.fp_n"
    )


def _slices(bounds: Sequence[Any], sizes: Sequence[int] | None) -> list[Slice]:
    slices: list[Slice] = []
    told: Sequence[int | None] = [None] * (len(bounds) + 1) if sizes is None else sizes
    for (after, upto), size in zip(pairwise([None, *bounds, None]), told, strict=True):
        each = {"after": after, "upto": upto, "expected": size}
        slices.append({name: value for name, value in each.items() if value is not None})
    return slices
