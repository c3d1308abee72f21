from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.duration import seconds, spelled
from fencepost.errors import InvalidDuration


@pytest.mark.parametrize(
    ("written", "meant_s"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("2d", 172800),
        ("1.5s", 1.5),
        (" 10 s ", 10),
        ("7", 7),
        (3, 3),
        (0.25, 0.25),
        (0, 0),
        (timedelta(minutes=2), 120),
    ],
)
def test_durations_as_people_write_them(written: str | float | timedelta, meant_s: float) -> None:
    assert seconds(written) == meant_s


@pytest.mark.parametrize(
    "nonsense", ["", "5 parsecs", "-3s", -1, "s", "1m 2x", float("nan"), float("inf"), True, None, [], "1e3"]
)
def test_nonsense_is_refused_with_what_it_was_meant_for(nonsense: object) -> None:
    with pytest.raises(InvalidDuration, match="ttl"):
        seconds(nonsense, what="ttl")  # type: ignore[arg-type]


@given(st.integers(min_value=1, max_value=10**7))
def test_spelling_is_read_back(duration_s: int) -> None:
    assert seconds(spelled(duration_s)) == duration_s
