"""Keys and items as JSON that reads back as the same values."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.positions import packed, unpacked

VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(UTC))
    | st.times()
    | st.timedeltas()
    | st.uuids()
)
NESTED = st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner))


@given(NESTED)
def test_what_was_packed_comes_back_through_json_with_its_type(value: object) -> None:
    back = unpacked(json.loads(json.dumps(packed(value))))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ((1, "a"), [1, "a"]),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (float("inf"), float("inf")),
        (datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=9))), datetime(2025, 12, 31, 15, tzinfo=UTC)),
        (time(1, 2, tzinfo=UTC), time(1, 2, tzinfo=UTC)),
        (timedelta(days=-1, microseconds=5), timedelta(days=-1, microseconds=5)),
        (date(2026, 1, 2), date(2026, 1, 2)),
        (Decimal("1.10"), Decimal("1.10")),
        (UUID(int=7), UUID(int=7)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_odd_ones_come_back_as_what_compares_equal(value: object, back: object) -> None:
    assert unpacked(json.loads(json.dumps(packed(value)))) == back


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


@pytest.mark.parametrize(("value", "plain"), [(Colour.RED, "red"), (Level.LOW, 1), (Word.YES, "yes")])
def test_members_of_enumerations_become_their_values(value: object, plain: object) -> None:
    assert packed(value) == plain
    assert type(packed(value)) is type(plain)


def test_a_mapping_that_looks_like_a_mark_is_kept_as_it_is() -> None:
    odd = {"~": "datetime", "v": "no date at all"}
    assert unpacked(packed(odd)) == odd


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, [object()], {"a": object()}], ids=["object", "set", "list", "dict"]
)
def test_what_has_no_such_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        packed(value)


def test_what_a_later_release_wrote_is_told_as_such() -> None:
    with pytest.raises(ValueError, match="written by a later release"):
        unpacked({"~": "quaternion", "v": [1, 2, 3, 4]})
