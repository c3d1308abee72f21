"""How long runs take: unknown jobs are long, a long run counts at once, and rare ones do not rule the rest."""

import pytest

from fencepost.engine.runners.run_times import UNKNOWN_S, RunTimes


def noted(*took: tuple[str, float]) -> RunTimes:
    times = RunTimes()
    for job, took_s in took:
        times.note_job(job, took_s)
    return times


def test_before_a_run_was_noted_everything_is_long_and_nothing_fits() -> None:
    times = RunTimes()
    assert times.expected_s("settle") == UNKNOWN_S
    assert (times.within(1.0), times.are_shorter_than(1e9)) == (0, False)


def test_a_job_that_was_not_seen_yet_is_judged_by_the_others_once_there_are_enough() -> None:
    times = noted(*((f"job {number}", 1e-4) for number in range(49)))
    assert times.expected_s("new") == UNKNOWN_S
    times.note_job("job 49", 1e-4)
    assert times.expected_s("new") == pytest.approx(5 * times.expected_s("job 0"))


def test_a_long_job_stays_long_among_quick_ones() -> None:
    times = noted(("long", 5.0), *((f"job {number}", 1e-4) for number in range(1000)))
    assert times.expected_s("long") == pytest.approx(5)
    assert times.are_shorter_than(2e-4)


def test_as_many_fit_as_runs_typically_take_and_none_after_one_that_took_longer() -> None:
    times = noted(*[("settle", 0.001)] * 100)
    assert times.within(0.05) == 50
    times.note_job("other", 60.0)
    assert times.within(0.05) == 0
    assert times.expected_s("settle") == 0.001
    times.note_job("settle", 0.001)
    assert times.within(0.05) >= 40


def test_a_job_that_has_become_long_is_long_from_its_next_run_on_and_short_again_after_a_short_one() -> None:
    times = noted(*[("settle", 0.001)] * 100, ("settle", 10.0))
    assert times.expected_s("settle") == 10.0
    times.note_job("settle", 0.001)
    assert times.expected_s("settle") < 0.002


def test_a_run_of_no_time_is_not_divided_by() -> None:
    assert noted(("settle", 0.0)).within(0.05) == 50_000
