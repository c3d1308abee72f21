"""How many items a chunk has, by its limits and by what was measured."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.sizing import OVERHEAD_BYTES, MeasuredChunk, Sizing, bytes_of, memory_bytes, size_bytes
from fencepost.errors import InvalidBulk

MEASURED = st.builds(MeasuredChunk, st.integers(0, 10**6), st.floats(0, 10**9), st.floats(0, 10**6))


def sizing(chunk: int = 1000, **limits: Any) -> Sizing:
    return Sizing.of(chunk=chunk, **{"chunk_bytes": None, "chunk_time": None, "memory": None, **limits})


class TestItems:
    def test_without_other_limits_it_is_the_chunk(self) -> None:
        assert sizing(2000).is_fixed
        assert sizing(2000).first() == 2000
        assert sizing(2000).items(MeasuredChunk(10, 100.0, 1.0), copies=4, workers=8) == 2000

    def test_bytes_of_a_chunk_bound_it(self) -> None:
        assert sizing(chunk_bytes="8kB").items(MeasuredChunk(100, 100.0, 1.0), copies=4, workers=1) == 81

    def test_the_time_of_a_chunk_bounds_it(self) -> None:
        assert sizing(chunk_time="2s").items(MeasuredChunk(100, 1.0, 1.0), copies=4, workers=1) == 200

    def test_the_budget_is_shared_by_workers_and_copies_after_what_each_takes_anyway(self) -> None:
        budget = 2 * OVERHEAD_BYTES + 2 * 400 * 100
        assert sizing(memory=budget).items(MeasuredChunk(1, 100.0, 1.0), copies=4, workers=2) == 100

    def test_the_smallest_limit_wins(self) -> None:
        limits = sizing(500, chunk_bytes=10_000, chunk_time="1s")
        assert limits.items(MeasuredChunk(100, 100.0, 10.0), copies=1, workers=1) == 10
        assert limits.items(MeasuredChunk(100, 1000.0, 0.1), copies=1, workers=1) == 10
        assert limits.items(MeasuredChunk(100, 1.0, 0.001), copies=1, workers=1) == 500

    @given(MEASURED, st.integers(1, 100), st.integers(1, 64), st.integers(1, 10**6))
    def test_a_chunk_has_at_least_one_item_and_at_most_its_limit(
        self, measured: MeasuredChunk, copies: int, workers: int, chunk: int
    ) -> None:
        limits = sizing(chunk, chunk_bytes="1MB", chunk_time="1s", memory="64MB")
        assert 1 <= limits.items(measured, copies=copies, workers=workers) <= chunk

    @given(MEASURED, st.integers(1, 10**6))
    def test_it_grows_by_at_most_double_and_shrinks_at_once(self, measured: MeasuredChunk, size: int) -> None:
        limits = sizing(10**6, chunk_bytes="1MB")
        wanted = limits.items(measured, copies=1, workers=1)
        assert limits.following(size, measured, copies=1, workers=1) == min(wanted, size * 2)


class TestFirst:
    def test_when_nothing_is_measured_it_begins_small(self) -> None:
        assert sizing(5000, memory="256MB").first() == 100
        assert sizing(50, memory="256MB").first() == 50


def test_the_arithmetic_of_the_peak() -> None:
    assert memory_bytes(1000, 200.0, copies=4, workers=2) == 2 * (1000 * 200 * 4 + OVERHEAD_BYTES)


class TestSizes:
    @pytest.mark.parametrize(
        ("text", "size"),
        [("8MB", 8 << 20), ("1.5 kb", 1536), ("2GiB", 2 << 30), (4096, 4096), ("64", 64), (" 7 b ", 7)],
    )
    def test_they_are_read_as_people_write_them(self, text: Any, size: int) -> None:
        assert size_bytes(text, "memory") == size

    @pytest.mark.parametrize("text", ["", "much", "5 parsecs", True, None, -1, "0", 1.5])
    def test_what_is_none_is_refused(self, text: Any) -> None:
        with pytest.raises(InvalidBulk, match="memory"):
            size_bytes(text, "memory")

    @pytest.mark.parametrize(
        "words",
        [{"chunk": 0}, {"chunk": True}, {"chunk": 10**7}, {"chunk": 1.5}, {"chunk_time": 0}, {"memory": "48MB"}],
        ids=str,
    )
    def test_limits_that_cannot_be_are_refused(self, words: dict[str, Any]) -> None:
        with pytest.raises(InvalidBulk):
            sizing(**words)


class TestBytes:
    def test_nothing_takes_nothing(self) -> None:
        assert bytes_of([]) == 0.0

    def test_what_items_hold_counts(self) -> None:
        small, large = [(n, "x") for n in range(100)], [(n, "x" * 1000) for n in range(100)]
        assert 900 < bytes_of(large) - bytes_of(small) < 1100
        assert bytes_of([{"a": "x" * 1000}]) > 1000

    def test_a_few_of_many_are_looked_at_and_all_of_few(self) -> None:
        looked = Looked(range(100_000))
        bytes_of(looked)
        assert looked.count < 200_000
        assert bytes_of([1]) == bytes_of([1, 1, 1])

    def test_what_holds_itself_ends(self) -> None:
        loop: list[Any] = []
        loop.append(loop)
        assert bytes_of([loop]) > 0


class Looked(list[int]):
    """A list that counts what is taken of it."""

    count = 0

    def __iter__(self) -> Any:
        for each in super().__iter__():
            self.count += 1
            yield each
