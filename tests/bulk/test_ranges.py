"""Slices by ranges of a key: disjoint, complete and about even, however the keys lie."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import StaticPool

from fencepost.bulk import keyset
from fencepost.bulk.readers.ranges import KEYS_PER_LOOK, MOST_HALVINGS, sampled_slices
from fencepost.errors import BrokenInput
from tests.bulk.sources import Source

ORDERS = "SELECT id, amount FROM orders WHERE id > :after ORDER BY id LIMIT :limit"
ORDERS_READER = keyset(ORDERS, key="id")
SHAPES: dict[str, Callable[[], Sequence[int]]] = {  # made by the process that needs them: they take a while
    "dense": lambda: range(1, 100_001),
    "even gaps": lambda: range(0, 10**12, 10**7),
    "two clusters far apart": lambda: [*range(1, 50_001), *range(2**62, 2**62 + 50_000)],
    "one far away": lambda: [*range(1, 100_000), 2**63 - 1],
    "dense, then sparse": lambda: [*range(1, 90_001), *range(10**9, 10**12, 10**8)],
    "ever sparser": lambda: sorted({int(1.0003**n) for n in range(100_000)} | set(range(1, 2000))),
    "many clusters": lambda: [start * 10**9 + n for start in range(40) for n in range(2500)],
    "thinned out": lambda: sorted(random.Random(7).sample(range(10**7), 50_000)),
    "negative": lambda: range(-(2**63), -(2**63) + 10**5),
    "snowflakes": lambda: sorted(_snowflakes(random.Random(7))),
}


def _snowflakes(chance: random.Random) -> set[int]:
    return {(ms << 22) | chance.randrange(4) for ms in range(0, 86_400_000, 1000)}


class Looked:
    """Keys in memory, and how often they were looked at."""

    def __init__(self, keys: Sequence[int]) -> None:
        self.keys = sorted(keys)
        self.looks = 0
        self.read = 0

    def __call__(self, after: Any, upto: Any, limit: int, *, descending: bool = False) -> list[int]:
        self.looks += 1
        start = 0 if after is None else bisect_right(self.keys, after)
        end = len(self.keys) if upto is None else bisect_right(self.keys, upto)
        found = (
            self.keys[max(start, end - limit) : end][::-1] if descending else self.keys[start : min(end, start + limit)]
        )
        self.read += len(found)
        return found

    def within(self, part: Any) -> list[int]:
        return self(*[part.get(name, [None])[0] for name in ("after", "upto")], len(self.keys))


@pytest.mark.parametrize("count", [2, 8, 50])
@pytest.mark.parametrize("shape", SHAPES)
def test_slices_are_about_even_after_a_few_dozen_looks(shape: str, count: int) -> None:
    looked = Looked(SHAPES[shape]())
    slices = sampled_slices(looked, count)
    looks = looked.looks
    assert looks <= 2 + 2 * MOST_HALVINGS
    assert looks <= 100 or shape == "many clusters" or count == 50
    assert looked.read <= looks * KEYS_PER_LOOK
    sizes = [len(looked.within(each)) for each in slices]
    assert sum(sizes) == len(looked.keys)
    even = len(looked.keys) / count
    assert len(slices) == count
    assert max(sizes) <= 2 * even
    estimated = sum(each["expected"] for each in slices)
    assert 0.5 * len(looked.keys) <= estimated <= 2 * len(looked.keys)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_size_of_the_whole_is_estimated_with_fewer_looks(shape: str) -> None:
    looked = Looked(SHAPES[shape]())
    (whole,) = sampled_slices(looked, 1)
    assert looked.looks <= 100
    assert list(whole) == ["expected"]
    assert 0.3 * len(looked.keys) <= whole["expected"] <= 3 * len(looked.keys)


def test_nothing_is_said_of_sizes_where_samples_do_not_tell_them() -> None:
    looked = Looked([start * 10**12 + n for start in range(1000) for n in range(500)])
    slices = sampled_slices(looked, 4)
    assert looked.looks <= 2 + 2 * MOST_HALVINGS
    assert not any("expected" in each for each in slices)
    assert sum(len(looked.within(each)) for each in slices) == 500_000


ENDS = (-(2**63), 2**63 - 1)
NUMBERS = st.one_of(st.integers(*ENDS), st.integers(0, 100), st.integers(10**6, 10**6 + 300), st.sampled_from(ENDS))


@st.composite
def skewed(draw: st.DrawFn) -> list[int]:
    """Numbers here and there, and up to three runs of them."""
    keys = set(draw(st.lists(NUMBERS, max_size=60)))
    for start in draw(st.lists(st.integers(-(2**62), 2**62), max_size=3)):
        step, length = draw(st.sampled_from([1, 2, 10**6])), draw(st.integers(1, 300))
        keys |= set(range(start, start + step * length, step))
    return sorted(keys)


@pytest.fixture(scope="module")
def memory() -> Iterator[Source]:
    """SQLite in memory: quick enough for many examples."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    source = Source(engine)
    source.orders([])
    source.execute("CREATE TABLE things (k TEXT PRIMARY KEY)")
    yield source
    engine.dispose()


def refill(source: Source, table: str, columns: str, rows: Any) -> None:
    source.execute(f"DELETE FROM {table}")
    source.fill(table, columns, rows)


def assert_valid(source: Source, reader: Any, slices: Any, keys: list[Any], count: int) -> None:
    found = [source.read(reader, part, limit=500) for part in slices]
    assert [row[0] for rows in found for row in rows] == keys  # complete, disjoint, and in order
    assert 1 <= len(slices) <= count
    assert "after" not in slices[0]
    assert "upto" not in slices[-1]
    assert all(one["upto"] == other["after"] for one, other in pairwise(slices))


@given(keys=skewed(), count=st.integers(1, 40))
@example(keys=[-(2**63), *range(200), 2**63 - 1], count=3)
@settings(max_examples=60, deadline=None)
def test_whatever_the_numbers_slices_are_disjoint_and_complete(memory: Source, keys: list[int], count: int) -> None:
    refill(memory, "orders", "id, amount", ((key, 1) for key in keys))
    slices = memory.divided(ORDERS_READER, count)
    assert_valid(memory, ORDERS_READER, slices, keys, count)
    if len(keys) <= KEYS_PER_LOOK:  # all were seen
        assert len(slices) == max(1, min(count, len(keys)))
        assert [each["expected"] for each in slices] == [len(memory.read(ORDERS_READER, part)) for part in slices]


@given(
    keys=st.sets(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5), max_size=80),
    count=st.integers(2, 20),
)
@settings(max_examples=40, deadline=None)
def test_whatever_the_texts_slices_are_disjoint_complete_and_even(memory: Source, keys: set[str], count: int) -> None:
    refill(memory, "things", "k", ((key,) for key in keys))
    reader = keyset("SELECT k FROM things WHERE k > :after ORDER BY k LIMIT :limit", key="k")
    slices = memory.divided(reader, count)
    assert_valid(memory, reader, slices, sorted(keys, key=str.encode), count)
    sizes = [len(memory.read(reader, part, limit=500)) for part in slices]
    assert [each["expected"] for each in slices] == sizes
    assert max(sizes) - min(sizes) <= 1


class TestOnEachDatabase:
    @pytest.fixture
    def source(self, engine: Engine) -> Source:
        return Source(engine)

    def test_whole_numbers_with_a_filter_and_a_parameter(self, source: Source) -> None:
        source.orders([*range(1, 400), *range(10**12, 10**12 + 400)])
        reader = keyset(ORDERS.replace("WHERE", "WHERE id % :every = 0 AND"), key="id")
        keys = [row.id for row in source.read(reader, limit=1000, every=3)]
        slices = source.divided(reader, 4, every=3)
        assert [row.id for part in slices for row in source.read(reader, part, every=3)] == keys
        sizes = [len(source.read(reader, part, every=3)) for part in slices]
        assert max(sizes) < 1.5 * len(keys) / 4
        assert sum(each["expected"] for each in slices) in range(int(0.7 * len(keys)), int(1.4 * len(keys)))

    def test_keys_of_two_columns_are_divided_evenly(self, source: Source) -> None:
        source.execute("CREATE TABLE orders (region VARCHAR(9), id INTEGER, PRIMARY KEY (region, id))")
        source.fill("orders", "region, id", ((f"r{n % 7}", n) for n in range(103)))
        query = "SELECT region, id FROM orders o WHERE (o.region, o.id) > (:after_region, :after_id) AND id < :most"
        reader = keyset(f"{query} -- all\nORDER BY o.region, o.id LIMIT :limit", key=("region", "id"))
        slices = source.divided(reader, 5, most=102)
        assert [each["expected"] for each in slices] == [21, 20, 21, 20, 20]
        assert [len(source.read(reader, part, limit=7, most=102)) for part in slices] == [21, 20, 21, 20, 20]

    def test_an_empty_table_and_one_with_fewer_rows_than_partitions(self, source: Source) -> None:
        source.orders([])
        assert source.divided(ORDERS_READER, 4) == [{"expected": 0}]
        source.fill("orders", "id, amount", [(3, 1), (9, 1)])
        assert source.divided(ORDERS_READER, 4) == [{"upto": [3], "expected": 1}, {"after": [3], "expected": 1}]
        assert source.divided(ORDERS_READER, 1) == [{"expected": 2}]

    def test_partitions_by_number_are_told_by_it_alone(self, source: Source) -> None:
        reader = keyset(ORDERS.replace("WHERE", "WHERE id % :parts = :part AND"), key="id")
        source.orders(range(1, 31))
        slices = source.divided(reader, 3)
        assert slices == [{"part": n, "parts": 3} for n in range(3)]
        assert sorted(row.id for part in slices for row in source.read(reader, part)) == list(range(1, 31))
        assert len(source.read(reader)) == 30

    def test_a_query_that_cannot_be_ranked_is_refused_with_what_to_write(self, source: Source) -> None:
        source.execute("CREATE TABLE things (k VARCHAR(9) PRIMARY KEY, n INTEGER)")
        source.fill("things", "k, n", [("a", 1), ("b", 2)])
        query = "SELECT t.k, u.k FROM things t, things u WHERE u.n = t.n AND t.k > :after ORDER BY t.k LIMIT :limit"
        with pytest.raises(BrokenInput, match=r"two columns named k|:part and :parts"):
            source.divided(keyset(query, key="k"), 2)
