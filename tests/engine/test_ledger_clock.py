"""What a node knows of the ledger's time, from answers that came at once and from some that came late."""

import pytest

from fencepost.engine.ledger_clock import LedgerClock
from fencepost.threaded.runtime import ThreadedRuntime

NOON_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
HOUR_S = 3600.0


class SetRuntime(ThreadedRuntime):
    """A machine whose monotonic clock is set by the test."""

    at = 100.0

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def runtime() -> SetRuntime:
    return SetRuntime()


@pytest.fixture
def clock(runtime: SetRuntime) -> LedgerClock:
    made = LedgerClock(runtime, longest_gap_s=5.0)
    made.observe(NOON_US, since=runtime.at)
    return made


@pytest.mark.parametrize("asleep_h", [(72,), (2, 2), (3, 5), (1.5, 1.5, 1.5)])
def test_answers_read_after_a_sleep_do_not_stop_the_planning(runtime, clock, asleep_h) -> None:
    """The process was suspended while its answer was on the way; twice in a row, with nothing fresh between, too."""
    true_us = NOON_US
    for hours in asleep_h:
        asked_at = runtime.at
        true_us += SECOND_US
        runtime.at += hours * HOUR_S
        assert clock.observe(true_us, since=asked_at)
        true_us += round(hours * HOUR_S) * SECOND_US
    assert clock.observe(true_us + 1, since=runtime.at)
    assert clock.unreported_leaps() == []
    assert abs(clock.there_us() - true_us) < SECOND_US


def test_what_a_late_answer_says_of_the_time_is_not_believed(runtime, clock) -> None:
    runtime.at += 2 * HOUR_S
    clock.observe(NOON_US + SECOND_US, since=100.0)
    assert clock.there_us() == NOON_US + round(2 * HOUR_S) * SECOND_US


def test_the_first_answer_counts_however_late_it_is(runtime) -> None:
    clock = LedgerClock(runtime, longest_gap_s=5.0)
    assert clock.observe(NOON_US, since=runtime.at - 2 * HOUR_S)
    assert clock.is_known
    runtime.at += 1
    assert clock.observe(NOON_US + round(2 * HOUR_S) * SECOND_US, since=runtime.at)
    assert clock.unreported_leaps() == []


def test_a_leap_in_an_answer_that_came_at_once_stops_it_and_is_reported_once(runtime, clock) -> None:
    for _ in range(3):
        runtime.at += 1
        assert not clock.observe(NOON_US + round(runtime.at + 2 * HOUR_S) * SECOND_US, since=runtime.at - 0.5)
    assert len(clock.unreported_leaps()) == 1


def test_a_leap_in_an_answer_that_came_late_stops_it(runtime, clock) -> None:
    """The true time is even later: nothing may be planned by it."""
    runtime.at += 2 * HOUR_S
    assert not clock.observe(NOON_US + round(10 * HOUR_S) * SECOND_US, since=100.0)
