"""Figures: quantiles within their error, sums that do not depend on who counted, and texts that are damaged."""

from __future__ import annotations

import json
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.figures import (
    ERROR,
    HOUR_US,
    LAST_BUCKET,
    WORDS,
    Figures,
    bucket_of,
    hour_of,
    middle_s,
    total,
    usual_quantiles,
)

DAY_US = 86_400_000_000
SMALLEST_US = 100  # below which all run times are one
durations = st.integers(min_value=0, max_value=400 * DAY_US)


def counted(times: list[int]) -> Figures:
    figures = Figures.none()
    for took_us in times:
        figures.run_times[bucket_of(took_us)] += 1
    return figures


@given(st.lists(durations, min_size=1, max_size=300))
def test_each_quantile_is_within_its_error_of_the_true_one(times: list[int]) -> None:
    ranked = sorted(times)
    for share, found_s in zip((0.5, 0.95, 0.99), usual_quantiles(counted(times).run_times), strict=True):
        true_us = ranked[ceil(share * len(ranked)) - 1]
        assert found_s is not None
        if true_us <= SMALLEST_US:
            assert found_s * 1_000_000 <= SMALLEST_US
        else:
            assert found_s * 1_000_000 == pytest.approx(true_us, rel=ERROR + 1e-6)


@given(st.lists(st.tuples(st.integers(0, 4), durations), max_size=200))
def test_the_sum_over_nodes_is_what_one_node_would_have_counted(runs: list[tuple[int, int]]) -> None:
    nodes = [counted([took_us for where, took_us in runs if where == node]) for node in range(5)]
    stored = [Figures.read(*each.stored()) for each in nodes]
    assert total(stored) == counted([took_us for _, took_us in runs])


def test_buckets_are_adjacent_and_end() -> None:
    for bucket in range(1, LAST_BUCKET):
        assert bucket_of(round(middle_s(bucket) * 1_000_000)) == bucket or bucket < 20  # small ones hold few whole µs
    assert bucket_of(0) == bucket_of(SMALLEST_US) == 0
    assert bucket_of(SMALLEST_US + 1) == 1
    assert bucket_of(2**62) == LAST_BUCKET


def test_without_run_times_there_are_no_quantiles() -> None:
    assert usual_quantiles({}) == (None, None, None)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", '{"later":3}', '{"succeeded":-1,"failed":"1","-3":4,"999":1,"07":1,"lost":true}']
)
def test_what_is_damaged_or_of_a_later_release_counts_for_nothing(text: str) -> None:
    assert Figures.read(text, text) == Figures.none()


def test_every_word_is_read_back() -> None:
    figures = Figures.read(json.dumps(dict.fromkeys(WORDS, 2)), '{"0":1,"300":2}')
    assert [figures.outcomes[word] for word in WORDS] == [2] * len(WORDS)
    assert figures.run_times == {0: 1, LAST_BUCKET: 2}


def test_an_hour_begins_where_the_clock_says_so() -> None:
    assert hour_of(7 * HOUR_US) == hour_of(8 * HOUR_US - 1) == 7 * HOUR_US
