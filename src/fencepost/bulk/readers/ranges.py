"""Divides a key into ranges of about the same number of rows, and estimates the number of rows.

Integer keys are sampled. A few keys at both ends of a range show where it begins and ends, and how dense it is there.
The range that may have the most keys is halved, a few dozen times, until the estimate changes little. Each sample reads
a few rows from an index. Nothing is counted, and gaps cost nothing. For other keys, the database reads the whole key
once.

**Promises.** The slices of a plan are disjoint and together complete, however bad the estimate is: their bounds are
increasing numbers or keys. The first slice has no lower bound, and the last no upper bound.

**Not promised.** That the slices have about the same size if keys are in hundreds of clusters with wide gaps. This is
detected, and then there is no estimate of the number of rows.
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

KEYS_PER_LOOK = 24  # a short range of an index: enough to tell how dense keys are at this place
LEAST_HALVINGS = (8, 48)  # at least the first; two for each slice, up to the second
MOST_HALVINGS = 96  # 96 short statements; a table that is not understood by then is divided as far as it is
_SETTLED_AFTER = 6  # halvings in a row without a surprise that changed the total by less than _SETTLED_SHARE
_SETTLED_SHARE = 0.02  # if less, more halvings are needed; if more, slices differ more in size
_MIDDLE = (617, 1361)  # a little off the middle, because keys may be in clusters at equal distances
_SURPRISE = 4  # how many times sparser the middle is than the ends, to count as a surprise


class KeyQuery(Protocol):
    """Returns the first keys after one, or the last keys up to another; None is no bound."""

    def __call__(self, after: Any, upto: Any, limit: int, *, descending: bool = False) -> list[Any]: ...


def hashed_slices(count: int) -> list[Slice]:
    """Return slices for a query that uses ``:part`` and ``:parts``."""
    return [{"part": number, "parts": count} for number in range(count)]


# -- whole numbers -----------------------------------------------------------------------------------------------------


def sampled_slices(look: KeyQuery, count: int) -> list[Slice]:
    """Return up to `count` slices of an integer key."""
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
    """A range of keys: its first and its last keys, which are all of its keys if they meet."""

    head: Sequence[int]
    tail: Sequence[int]

    @cached_property
    def is_known(self) -> bool:
        """Whether there are no other keys between its first and its last ones."""
        return self.head[-1] >= self.tail[0] - 1

    @cached_property
    def between(self) -> int:
        """The estimated number of keys between those that were read."""
        gap = self.tail[0] - self.head[-1] - 1
        return 0 if self.is_known else max(1, round(gap * (_density(self.head) + _density(self.tail)) / 2))

    @cached_property
    def most(self) -> float:
        """The number of keys if the range were as dense everywhere as at its denser end."""
        gap = self.tail[0] - self.head[-1] - 1
        return 0.0 if self.is_known else gap * max(_density(self.head), _density(self.tail))

    def is_surprised_by(self, one: Stratum, other: Stratum) -> bool:
        """Whether it is much sparser where its halves meet than at its ends."""
        width = other.head[-1] - one.tail[0] + 1
        return (len(one.tail) + len(other.head)) * _SURPRISE < width * (_density(self.head) + _density(self.tail)) / 2

    def halves(self, look: KeyQuery) -> tuple[Stratum, Stratum]:
        """Divide the range in two, and read the keys around the middle."""
        middle = self.head[-1] + (self.tail[0] - self.head[-1]) * _MIDDLE[0] // _MIDDLE[1]
        last = look(self.head[0], middle, KEYS_PER_LOOK, descending=True)
        first = look(middle, self.tail[-1], KEYS_PER_LOOK)
        # Rows may be deleted meanwhile. If none are left, use the keys that were read before.
        return Stratum(self.head, sorted(last) or self.head), Stratum(sorted(first) or self.tail, self.tail)


def _density(keys: Sequence[int]) -> float:
    return min(1.0, (len(keys) - 1) / max(1, keys[-1] - keys[0])) if len(keys) > 1 else 1.0


class RangeSample:
    """Ranges in the order of their keys, which are halved step by step."""

    def __init__(self, look: KeyQuery, whole: Stratum) -> None:
        self._look = look
        self._settled = 0  # halvings in a row that have changed little
        self.strata = [whole]

    @property
    def is_settled(self) -> bool:
        """Whether further halvings would probably change little."""
        return self._settled >= _SETTLED_AFTER

    def refine(self, least: int) -> None:
        """Halve at least `least` times, and then until it is settled, at most `MOST_HALVINGS` times."""
        for number in range(MOST_HALVINGS):
            if number >= least and self.is_settled:
                return
            if not self._halve():
                self._settled = _SETTLED_AFTER
                return

    def _halve(self) -> bool:
        """Halve the range that may have the most keys; False if everything is known."""
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
    """The number of rows up to a key: increasing points, with linear interpolation between them."""

    keys: list[int]
    rows: list[int]

    @staticmethod
    def of(strata: Sequence[Stratum]) -> Curve:
        """Combine the keys that were read and the estimates between them."""
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
        """Return the keys that divide it into `count` parts of equal size, or fewer if there are fewer rows."""
        total = self.rows[-1]
        wanted = dict.fromkeys(-(-number * total // count) for number in range(1, count))
        return list(dict.fromkeys(self._key_at(rows) for rows in wanted if rows < total))

    def sizes(self, bounds: Sequence[int]) -> list[int]:
        """Return the number of rows before the first bound, between each two bounds, and after the last."""
        upto = [0, *(self._rows_upto(key) for key in bounds), self.rows[-1]]
        return [more - less for less, more in pairwise(upto)]

    def _key_at(self, rows: int) -> int:
        place = bisect_left(self.rows, rows)
        return _between(self.rows, self.keys, place, rows)

    def _rows_upto(self, key: int) -> int:
        place = bisect_left(self.keys, key)
        return _between(self.keys, self.rows, place, key)


def _between(known: list[int], wanted: list[int], place: int, value: int) -> int:
    """Interpolate on the line that ends at the point with index `place`."""
    if known[place] == value:
        return wanted[place]
    before, after = place - 1, place
    run, rise = known[after] - known[before], wanted[after] - wanted[before]
    return wanted[before] + (value - known[before]) * rise // run


# -- any other key -----------------------------------------------------------------------------------------------------

Fetch = Callable[[str], "Rows"]


def ranked_slices(pages: PageQuery, fetch: Fetch, count: int) -> list[Slice]:
    """Return up to `count` slices of any key, with one pass over it in the database."""
    try:
        rows = fetch(_ranking(pages, count)).rows
    except BrokenInput:
        raise
    except Exception as error:
        raise BrokenInput(
            f"the query cannot be divided by ranges of its key {', '.join(pages.keys)}: {error}. Return each column "
            "once; or select the rows of a partition with :part and :parts, as in id % :parts = :part"
        ) from error
    numbers = [0, *(row[-1] for row in rows)]
    sizes = [more - less for less, more in pairwise(numbers)]
    return _slices([packed(row[:-1]) for row in rows[:-1]], sizes)


def _ranking(pages: PageQuery, count: int) -> str:
    """Return the SQL that selects the last key of each slice, with the number of rows up to it."""
    keys = ", ".join(f"q.{key}" for key in pages.results)
    ranked = f"SELECT {keys}, row_number() OVER (ORDER BY {keys}) AS fp_n, count(*) OVER () AS fp_all"
    names = ", ".join(f"r.{key}" for key in pages.results)
    # A row ends a slice if its slice number, n * count / all, has just increased.
    return (
        f"SELECT {names}, r.fp_n FROM ({ranked} FROM ({pages.all()}) q) r "  # noqa: S608 - the user's own query
        f"WHERE (r.fp_n * {int(count)}) % r.fp_all < {int(count)} ORDER BY r.fp_n"
    )


def _slices(bounds: Sequence[Any], sizes: Sequence[int] | None) -> list[Slice]:
    slices: list[Slice] = []
    expected: Sequence[int | None] = [None] * (len(bounds) + 1) if sizes is None else sizes
    for (after, upto), size in zip(pairwise([None, *bounds, None]), expected, strict=True):
        each = {"after": after, "upto": upto, "expected": size}
        slices.append({name: value for name, value in each.items() if value is not None})
    return slices
