"""How far ahead a runner claims: nothing before it knows, soon much, none behind long runs; and when to look again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.runs import Claim
from fencepost.engine.runners.claim_ahead import HORIZON_S, MOST_AHEAD, QUICK_S, ClaimAhead
from fencepost.engine.runners.deadlines import JobTimeouts

SLOTS = st.integers(1, 200)
DURATIONS_S = st.floats(0.0, 100.0)
MEASUREMENTS = st.lists(st.tuples(st.integers(1, 64), DURATIONS_S), min_size=1, max_size=50)


class TestClaimAhead:
    def test_nothing_is_taken_ahead_before_something_was_measured(self) -> None:
        lead = ClaimAhead(10)
        assert (lead.ahead, lead.beside(0), lead.is_quick) == (0, 0, False)

    @given(SLOTS, MEASUREMENTS)
    def test_it_is_bounded_and_at_most_doubles(self, slots: int, measurements: list[tuple[int, float]]) -> None:
        lead = ClaimAhead(slots)
        for count, mean_s in measurements:
            before = lead.ahead
            lead.measured(count, count * mean_s)
            assert 0 <= lead.ahead <= min(MOST_AHEAD, max(2 * before, slots))

    @given(SLOTS, MEASUREMENTS, st.floats(HORIZON_S * 1.01, 1000.0))
    def test_it_is_nothing_as_soon_as_a_run_takes_long(
        self, slots: int, measurements: list[tuple[int, float]], long_s: float
    ) -> None:
        lead = ClaimAhead(slots)
        for count, mean_s in measurements:
            lead.measured(count, count * mean_s)
        lead.measured(1, long_s)
        assert lead.ahead == 0

    @given(SLOTS, st.floats(1e-6, HORIZON_S * 0.99))
    def test_it_soon_is_what_the_slots_do_in_the_horizon(self, slots: int, took_s: float) -> None:
        lead = ClaimAhead(slots)
        for _ in range(10):
            lead.measured(1, took_s)
        assert lead.ahead == min(MOST_AHEAD, slots * int(HORIZON_S / took_s))

    @given(SLOTS, MEASUREMENTS, st.integers(0, 300), st.integers(0, 300))
    def test_slots_that_are_stuck_take_their_share_away(
        self, slots: int, measurements: list[tuple[int, float]], stuck: int, more: int
    ) -> None:
        lead = ClaimAhead(slots)
        for count, mean_s in measurements:
            lead.measured(count, count * mean_s)
        assert lead.beside(0) == lead.ahead
        assert lead.beside(stuck + more) <= lead.beside(stuck)
        assert lead.beside(slots) == lead.beside(slots + more) == 0

    @given(SLOTS, MEASUREMENTS)
    def test_typical_is_never_outside_of_what_was_measured(
        self, slots: int, measurements: list[tuple[int, float]]
    ) -> None:
        lead = ClaimAhead(slots)
        for count, mean_s in measurements:
            lead.measured(count, count * mean_s)
        means = [mean_s for _, mean_s in measurements]
        assert lead.times.typical_s is not None
        assert min(means) * 0.999 <= lead.times.typical_s <= max(*means, 1e-6) * 1.001

    def test_few_runs_that_waited_do_not_make_quick_ones_look_slow(self) -> None:
        lead = ClaimAhead(10)
        for turn in range(300):
            lead.measured(64, 64 * (12e-6 if turn % 6 else 0.04))
        assert lead.times.typical_s == pytest.approx(12e-6, rel=0.5)
        assert lead.is_quick

    def test_it_learns_within_a_few_dozen_runs_that_all_have_become_slow(self) -> None:
        lead = ClaimAhead(10)
        for _ in range(100):
            lead.measured(64, 64 * 5e-6)
        for _ in range(25):
            lead.measured(1, 0.005)
        assert not lead.is_quick


class TestHands:
    @given(SLOTS, MEASUREMENTS, st.integers(1, 1000))
    def test_there_is_always_one_and_never_more_than_claims_or_slots(
        self, slots: int, measurements: list[tuple[int, float]], queued: int
    ) -> None:
        lead = ClaimAhead(slots)
        for count, mean_s in measurements:
            lead.measured(count, count * mean_s)
        assert 1 <= lead.threads_for(queued) <= min(queued, slots)

    def test_quick_runs_get_one_and_others_all(self) -> None:
        quick, slow, unknown = ClaimAhead(8), ClaimAhead(8), ClaimAhead(8)
        quick.measured(1, QUICK_S / 2)
        slow.measured(1, QUICK_S * 2)
        assert (quick.threads_for(100), slow.threads_for(100), unknown.threads_for(100)) == (1, 8, 8)


def claim_of(job: str, run_id: int = 1) -> Claim:
    return Claim(run_id, job, 1, run_id, "{}", None, None, None, None, None, 0, 0, None, 0, 0, 1)


class TestDeadlines:
    @given(
        st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100)), max_size=20),
        st.floats(0, 200),
        st.floats(0.01, 50),
    )
    def test_what_is_overdue_is_overdue_and_no_other_is_looked_at_too_late(
        self, executing: list[tuple[str, float]], now: float, timeout_s: float
    ) -> None:
        timeouts = {"a": timeout_s, "b": 2 * timeout_s, "c": None}
        claims = [(claim_of(job, number), began_at) for number, (job, began_at) in enumerate(executing)]
        overdue, check_at = JobTimeouts(timeouts).sort(claims, now)
        for claim, began_at in claims:
            limit_s = timeouts[claim.job]
            is_overdue = limit_s is not None and began_at + limit_s <= now
            assert (claim in overdue) == is_overdue
            assert is_overdue or limit_s is None or check_at <= began_at + limit_s
        assert check_at > now

    @given(st.lists(st.floats(0.01, 100), min_size=1), st.floats(0, 10))
    def test_a_run_that_begins_just_after_a_look_is_seen_before_its_deadline(
        self, timeouts: list[float], now: float
    ) -> None:
        deadlines = JobTimeouts({str(number): timeout_s for number, timeout_s in enumerate(timeouts)})
        _, check_at = deadlines.sort([], now)
        assert check_at <= now + min(timeouts)

    def test_a_job_without_a_timeout_is_never_overdue(self) -> None:
        deadlines = JobTimeouts({"a": None})
        assert deadlines.sort([(claim_of("a"), 0.0), (claim_of("unknown"), 0.0)], 1e9)[0] == []
        assert deadlines.of("a") is None
