"""Keys of work: equal values give one key, different parts different ones, and what is ambiguous is refused."""

from __future__ import annotations

import enum
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import work_key
from fencepost.errors import InvalidName


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


class Mood(enum.StrEnum):
    GOOD = "good"


KST = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    ("part", "written"),
    [
        ("x", "x"),
        (42, "42"),
        (-1, "-1"),
        (Decimal("1.50"), "1.5"),
        (Decimal("1E+3"), "1000"),
        (Decimal("-0.0"), "0"),
        (Decimal("100"), "100"),
        (date(2026, 1, 31), "2026-01-31"),
        (datetime(2026, 1, 31, 9, tzinfo=KST), r"2026-01-31T00\:00\:00Z"),
        (datetime(2026, 1, 31, 0, 0, 0, 5, tzinfo=UTC), r"2026-01-31T00\:00\:00.000005Z"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (Size.BIG, "3"),
        (Mood.GOOD, "good"),
        ("e\u0301", "é"),
    ],
)
def test_each_kind_is_written_in_one_way(part: Any, written: str) -> None:
    assert work_key("k", part) == f"k:{written}"


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (1.5, "a float"),
        (datetime(2026, 1, 31), "no time zone"),
        (True, "means nothing"),
        (None, "NoneType cannot be part"),
        (b"x", "bytes cannot be part"),
        (("a",), "tuple cannot be part"),
        (Decimal("NaN"), "use a finite number"),
    ],
)
def test_what_is_ambiguous_is_refused_with_the_reason(part: Any, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        work_key("k", part)


def test_it_has_a_part() -> None:
    with pytest.raises(InvalidName, match="at least one part"):
        work_key()


_PARTS = st.lists(st.text(alphabet=":\\a#", max_size=4), min_size=1, max_size=4)


@given(_PARTS, _PARTS)
def test_parts_cannot_run_into_each_other(one: list[str], other: list[str]) -> None:
    assert (work_key(*one) == work_key(*other)) == (one == other)


@given(st.lists(st.text(), min_size=1))
def test_every_key_fits(parts: list[str]) -> None:
    assert len(work_key(*parts)) <= 191
