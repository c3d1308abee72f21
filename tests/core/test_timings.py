import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.timings import Timings
from fencepost.errors import InvalidTimings


def test_defaults_are_those_of_the_docs() -> None:
    timings = Timings.of("30s")
    assert timings == Timings(
        ttl_s=30, margin_s=3, renew_every_s=10, call_timeout_s=3, retry_every_s=2, term_grace_s=5, kill_s=1
    )
    assert timings.trust_s == 27
    assert timings.stop_s == 6


@given(st.floats(min_value=0.2, max_value=7 * 86400))
def test_every_ttl_scales_to_timings_that_fit(ttl_s: float) -> None:
    timings = Timings.of(ttl_s)
    worst = timings.renew_every_s + timings.call_timeout_s + timings.retry_every_s + timings.stop_s
    assert worst <= timings.ttl_s - timings.margin_s


def test_error_names_the_inequality_that_fails() -> None:
    with pytest.raises(InvalidTimings) as error:
        Timings.of("10s", renew_every="9s")
    sentence = str(error.value)
    assert "renew_every (9s) + call_timeout (1s)" in sentence
    assert "≤ ttl (10s) − margin (1s) = 9s" in sentence
    assert "increase the ttl" in sentence


@pytest.mark.parametrize(
    ("ttl", "changes", "says"),
    [
        ("1ms", {}, "ttl 1ms must be between"),
        ("30d", {}, "must be between"),
        ("30s", {"margin": 0}, "margin must be more than zero"),
        ("30s", {"renew_every": 0}, "renew_every must be more than zero"),
        ("30s", {"patience": "1s"}, "no timing 'patience'"),
        ("30s", {"margin": "31s"}, "must be ≤ ttl"),
    ],
)
def test_impossible_timings_are_refused(ttl: str, changes: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidTimings, match=says):
        Timings.of(ttl, **changes)
