from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.ending import ending_of, fate_of_lost
from fencepost.core.policy import BatchType, OnCrash, Policy
from fencepost.core.retry import after_loss
from fencepost.core.runs import Claim, Ending
from fencepost.core.states import TRANSITIONS, RunState, outcome_of
from fencepost.engine.runners.outcome import How, Outcome

RANDOM = st.floats(min_value=0, max_value=1, exclude_max=True)


def claim(**changes: Any) -> Claim:
    blank = Claim(
        run_id=7,
        job="settle",
        attempt=1,
        token=99,
        params="{}",
        schedule=None,
        due_at_us=None,
        window_start_us=None,
        window_end_us=None,
        exclusive_key="job:settle",
        failures=0,
        crashes=0,
        requested_by=None,
        available_at_us=0,
        claimed_at_us=0,
        ticks=1,
    )
    return blank._replace(**changes)


def outcome(how: How, **changes: Any) -> Outcome:
    return Outcome(7, 1, 99, how.value, 5)._replace(**changes)


def ending(policy: Policy, claimed: Claim, ended: Outcome, random: float = 0.0) -> Ending:
    found = ending_of(policy, claimed, ended, random=random)
    assert found is not None
    return found


@given(
    st.builds(Policy.of, st.sampled_from(BatchType), on_crash=st.sampled_from(OnCrash)),
    st.sampled_from([how for how in How if how is not How.LOST]),
    st.builds(claim, failures=st.integers(0, 8), crashes=st.integers(0, 4)),
    st.none() | st.integers(0, 10**9),
    RANDOM,
)
def test_every_ending_is_a_way_of_the_table(
    policy: Policy, how: How, claimed: Claim, after_us: int | None, random: float
) -> None:
    ended = ending(policy, claimed, outcome(how, retry_after_us=after_us), random)
    ways = {
        (target.value, outcome_of(move) and str(outcome_of(move)))
        for (state, move), targets in TRANSITIONS.items()
        if state is RunState.RUNNING
        for target in targets
    }
    assert (ended.state, ended.outcome) in ways
    assert type(ended.state) is str
    assert ended.outcome is None or type(ended.outcome) is str
    assert (ended.run_id, ended.attempt, ended.token, ended.exclusive_key) == (7, 1, 99, "job:settle")
    assert ended.delay_us >= 0
    assert (ended.delay_us == 0) or ended.state == "queued"
    assert (ended.outcome is None) == (how is How.RETURNED)


@pytest.mark.parametrize(
    ("how", "state", "attempt"),
    [
        (How.SUCCEEDED, "succeeded", "succeeded"),
        (How.FAILED, "dead", "failed"),
        (How.RETRY, "dead", "failed"),
        (How.TIMED_OUT, "dead", "timed_out"),
        (How.SKIPPED, "skipped", "cancelled"),
        (How.CANCELLED, "cancelled", "cancelled"),
        (How.CRASHED, "queued", "lost"),
        (How.INTERRUPTED, "queued", "interrupted"),
        (How.RETURNED, "queued", None),
    ],
)
def test_what_each_end_means_without_retries(how: How, state: str, attempt: str | None) -> None:
    ended = ending(Policy.of("manual"), claim(), outcome(how))
    assert (ended.state, ended.outcome) == (state, attempt)


def test_a_lost_attempt_is_left_to_the_reaper() -> None:
    assert ending_of(Policy.of(), claim(), outcome(How.LOST), random=0) is None


def test_a_success_keeps_its_result_and_the_note_about_it() -> None:
    ended = ending(Policy.of(), claim(), outcome(How.SUCCEEDED, result="3", reason="a note"))
    assert (ended.result, ended.why, ended.took_us, ended.error_code) == ("3", "a note", 5, None)


@given(st.integers(0, 10), RANDOM)
def test_a_run_fails_as_often_as_its_policy_allows(retries: int, random: float) -> None:
    policy = Policy.of(retries=retries, backoff="1s..1m")
    states = [
        ending(policy, claim(failures=failures), outcome(How.FAILED), random).state for failures in range(retries + 2)
    ]
    assert states == ["queued"] * retries + ["dead"] * 2


@given(st.integers(0, 5), RANDOM)
def test_a_retry_comes_after_its_backoff(failures: int, random: float) -> None:
    policy = Policy.of(retries=10, backoff="10s..10h")
    ended = ending(policy, claim(failures=failures), outcome(How.FAILED), random)
    least_us = 10_000_000 * 2**failures
    assert least_us <= ended.delay_us <= least_us * 1.25


def test_the_jobs_own_wish_takes_the_place_of_the_backoff() -> None:
    ended = ending(Policy.of(), claim(), outcome(How.RETRY, retry_after_us=1_500_000), 0.9)
    assert (ended.state, ended.delay_us) == ("queued", 1_500_000)


def test_crashes_do_not_count_as_failures_nor_failures_as_crashes() -> None:
    policy = Policy.of(retries=1, crash_limit=3)
    assert ending(policy, claim(failures=0, crashes=2), outcome(How.FAILED)).state == "queued"
    assert ending(policy, claim(failures=1, crashes=1), outcome(How.CRASHED)).state == "queued"
    assert ending(policy, claim(failures=1, crashes=2), outcome(How.CRASHED)).state == "dead"


@pytest.mark.parametrize(("on_crash", "state"), [("rerun", "queued"), ("fail", "dead"), ("hold", "waiting")])
def test_shutdowns_count_against_nothing_and_on_crash_still_decides(on_crash: str, state: str) -> None:
    policy = Policy.of(retries=0, crash_limit=1, on_crash=on_crash)
    ended = ending(policy, claim(crashes=9), outcome(How.INTERRUPTED))
    assert (ended.state, ended.outcome) == (state, "interrupted")


def test_errors_are_told_with_their_reason() -> None:
    failed = ending(Policy.of("manual"), claim(), outcome(How.FAILED, error_code="KeyError", error="'x'", trace="…"))
    assert (failed.error_code, failed.error, failed.trace) == ("KeyError", "'x'", "…")
    assert failed.why == "its policy has no retries"
    slow = ending(Policy.of("manual", timeout="10m"), claim(), outcome(How.TIMED_OUT))
    assert slow.error_code == "timeout"
    assert slow.error == "took longer than its timeout of 10m; its policy has no retries"
    crashed = ending(Policy.of(crash_limit=1), claim(), outcome(How.CRASHED, error="killed by signal 9"))
    assert (crashed.error_code, crashed.error) == ("crash_limit", "killed by signal 9")
    assert crashed.why == "its node or worker was lost 1 times; crash_limit is 1"
    again = ending(Policy.of(retries=3, backoff="10s"), claim(failures=1), outcome(How.FAILED))
    assert again.why == "failure 2 of 4; again in 20s"


def test_skipped_and_cancelled_runs_say_why() -> None:
    for how in (How.SKIPPED, How.CANCELLED):
        assert ending(Policy.of(), claim(), outcome(how, reason="no orders")).why == "no orders"


def test_an_end_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="run 7 of job 'settle' ended in an unknown way: 'exploded'"):
        ending_of(Policy.of(), claim(), Outcome(7, 1, 99, "exploded"), random=0)


def test_a_run_that_was_lost_while_being_cancelled_is_cancelled() -> None:
    fate = fate_of_lost(after_loss(Policy.of(on_crash="hold"), crashes=1), is_cancel_requested=True)
    assert (fate.state, fate.outcome) == ("cancelled", "lost")


def test_a_held_run_waits_for_a_person() -> None:
    fate = fate_of_lost(after_loss(Policy.of(on_crash="hold"), crashes=1))
    assert (fate.state, fate.outcome, fate.is_held) == ("waiting", "lost", True)
    assert "a person has to release or cancel it" in (fate.why or "")
    assert not fate_of_lost(after_loss(Policy.of(), crashes=1)).is_held
