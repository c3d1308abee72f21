import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.policy import Policy
from fencepost.core.retry import (
    LONGEST_DELAY_S,
    Backoff,
    GiveUp,
    GiveUpLost,
    HoldForPerson,
    Rerun,
    RetryIn,
    after_failure,
    after_loss,
)
from fencepost.errors import InvalidDuration, InvalidPolicy

DELAYS = st.floats(min_value=0, max_value=86400)
BACKOFFS = st.builds(
    lambda one, other, factor, jitter: Backoff(min(one, other), max(one, other), factor, jitter),
    DELAYS,
    DELAYS,
    st.floats(min_value=1, max_value=100),
    st.floats(min_value=0, max_value=1),
)
RANDOM = st.floats(min_value=0, max_value=1, exclude_max=True)


@pytest.mark.parametrize(
    ("written", "base_s", "cap_s", "factor"),
    [
        ("10s", 10, 600, 2),
        ("10s..5m", 10, 300, 2),
        ("10s .. 10s", 10, 10, 2),
        ("20m", 1200, 1200, 2),
        (5, 5, 600, 2),
        ("0s..0s", 0, 0, 2),
        ({"base": "1s", "factor": 3, "cap": "9s"}, 1, 9, 3),
        ({"base": 1}, 1, 600, 2),
        (Backoff(1, 2, 3), 1, 2, 3),
    ],
)
def test_a_backoff_is_read_as_people_write_it(written: object, base_s: float, cap_s: float, factor: float) -> None:
    read = Backoff.of(written)  # type: ignore[arg-type]
    assert (read.base_s, read.cap_s, read.factor) == (base_s, cap_s, factor)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("5m..10s", "first delay must be at most the last"),
        ("1s..400d", "the last at most 366d"),
        ({"base": 1, "factor": 0.5}, "factor 0.5 must be between 1 and 100"),
        ({"base": 1, "jitter": 2}, "jitter 2 must be between 0 and 1"),
        ({"base": 1, "factor": "much"}, "must be a number"),
        ({"cap": 1}, "needs a base"),
        ({"base": 1, "cop": 2}, "did you mean 'cap'"),
    ],
)
def test_an_impossible_backoff_is_refused(written: object, says: str) -> None:
    with pytest.raises(InvalidPolicy, match=says):
        Backoff.of(written)  # type: ignore[arg-type]


@pytest.mark.parametrize("written", ["soon", "..5m", "10s..", True, None, [1]])
def test_what_is_no_duration_is_refused_as_one(written: object) -> None:
    with pytest.raises(InvalidDuration, match="backoff"):
        Backoff.of(written)  # type: ignore[arg-type]


def test_delays_double_up_to_the_cap() -> None:
    backoff = Backoff.of("10s..1m")
    assert [backoff.delay_s(failures, 0.0) for failures in (1, 2, 3, 4, 50)] == [10, 20, 40, 60, 60]


@given(BACKOFFS, st.integers(min_value=1, max_value=10**6), RANDOM)
def test_a_delay_is_never_sooner_than_its_backoff_says_nor_much_later(
    backoff: Backoff, failures: int, random: float
) -> None:
    delay_s = backoff.delay_s(failures, random)
    assert backoff.base_s <= delay_s <= backoff.cap_s * (1 + backoff.jitter) * (1 + 1e-9)


@given(BACKOFFS, st.integers(min_value=1, max_value=2000), RANDOM)
def test_delays_never_shrink_from_one_failure_to_the_next(backoff: Backoff, failures: int, random: float) -> None:
    assert backoff.delay_s(failures, random) <= backoff.delay_s(failures + 1, random)


@given(BACKOFFS)
def test_a_backoff_survives_being_written_and_read(backoff: Backoff) -> None:
    assert Backoff.of(backoff.to_json()) == backoff


@given(st.integers(min_value=0, max_value=50), RANDOM)
def test_there_are_as_many_attempts_as_one_and_the_retries(retries: int, random: float) -> None:
    policy = Policy.of(retries=retries)
    failed = 1
    while isinstance(after_failure(policy, attempts_failed=failed, random=random), RetryIn):
        failed += 1
    assert failed == retries + 1


def test_giving_up_says_why() -> None:
    assert after_failure(Policy.of("manual"), attempts_failed=1, random=0) == GiveUp("its policy has no retries")
    assert after_failure(Policy.of("bulk"), attempts_failed=3, random=0) == GiveUp("all 3 attempts failed")


def test_the_jobs_own_wish_is_kept_to_the_second_but_counts_as_an_attempt() -> None:
    policy = Policy.of(retries=1)
    assert after_failure(policy, attempts_failed=1, random=0.9, retry_after_s=7) == RetryIn(7)
    assert after_failure(policy, attempts_failed=1, random=0.9, retry_after_s=1e300) == RetryIn(LONGEST_DELAY_S)
    assert isinstance(after_failure(policy, attempts_failed=2, random=0.9, retry_after_s=7), GiveUp)


@given(st.integers(min_value=1, max_value=20))
def test_a_run_is_lost_as_often_as_its_limit_says_and_then_fails(limit: int) -> None:
    policy = Policy.of(crash_limit=limit, retries=0)
    crashes = 1
    while after_loss(policy, crashes=crashes) == Rerun():
        crashes += 1
    assert crashes == limit
    ending = after_loss(policy, crashes=crashes)
    assert isinstance(ending, GiveUpLost)
    assert ending.code == "crash_limit"


@given(st.integers(min_value=1, max_value=20))
def test_fail_and_hold_do_not_wait_for_the_limit(crashes: int) -> None:
    assert isinstance(after_loss(Policy.of(on_crash="hold"), crashes=crashes), HoldForPerson)
    failed = after_loss(Policy.of(on_crash="fail"), crashes=crashes)
    assert isinstance(failed, GiveUpLost)
    assert failed.code == "crashed"
