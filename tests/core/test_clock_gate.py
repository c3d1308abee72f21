"""The ledger's clock is believed as long as it advances as the node's own does."""

from fencepost.core.clock_gate import LIMIT_US, ClockGate, Leap
from fencepost.core.contact import Contact

HOUR_US = 3_600_000_000
NOON_US = 1_800_000_000_000_000


def test_the_first_reading_is_believed() -> None:
    gate = ClockGate()
    assert gate.observe(ledger_us=NOON_US, now=5.0) is None
    assert gate.is_open


def test_a_clock_that_advances_with_ours_is_believed_also_after_a_long_sleep() -> None:
    gate = ClockGate()
    gate.observe(ledger_us=NOON_US, now=0.0)
    assert gate.observe(ledger_us=NOON_US + 10 * HOUR_US, now=36_000.0) is None


def test_a_leap_ahead_closes_the_gate() -> None:
    gate = ClockGate()
    gate.observe(ledger_us=NOON_US, now=0.0)
    assert gate.observe(ledger_us=NOON_US + LIMIT_US + 1, now=0.0) == Leap(LIMIT_US + 1)
    assert not gate.is_open


def test_a_leap_back_is_told_once_and_followed() -> None:
    gate = ClockGate()
    gate.observe(ledger_us=NOON_US, now=0.0)
    assert gate.observe(ledger_us=NOON_US - 2 * HOUR_US, now=0.0) == Leap(-2 * HOUR_US)
    assert gate.is_open
    assert gate.observe(ledger_us=NOON_US - 2 * HOUR_US + 1_000_000, now=1.0) is None


def followed(for_s: float = 700.0) -> ClockGate:
    """A gate whose clock has shown the right time until the moment 0; it was noon then."""
    gate = ClockGate()
    for second in range(-round(for_s), 1, 10):
        gate.observe(ledger_us=NOON_US + second * 1_000_000, now=float(second))
    return gate


def test_a_clock_that_went_back_and_is_put_right_is_believed_again() -> None:
    """The database's machine wakes with an old time, answers for minutes, and is then told the right time."""
    for minutes in (1, 2, 35):
        gate = followed()
        for second in range(0, 60 * minutes, 10):
            gate.observe(ledger_us=NOON_US - 2 * HOUR_US + second * 1_000_000, now=float(second))
        assert gate.observe(ledger_us=NOON_US + 60_000_000 * minutes, now=60.0 * minutes) is None
        assert gate.is_open


def test_a_clock_that_went_back_twice_may_return_to_where_it_was_first() -> None:
    gate = followed()
    gate.observe(ledger_us=NOON_US - 3 * HOUR_US, now=1.0)
    gate.observe(ledger_us=NOON_US - 5 * HOUR_US, now=2.0)
    assert gate.observe(ledger_us=NOON_US + 3_000_000, now=3.0) is None
    assert gate.is_open


def test_a_clock_that_was_ahead_for_a_moment_is_not_believed_when_it_is_ahead_again() -> None:
    """Of two servers behind a proxy one is a year ahead, and answered first."""
    gate, year_us = ClockGate(), 365 * 24 * HOUR_US
    gate.observe(ledger_us=NOON_US + year_us, now=0.0)
    gate.observe(ledger_us=NOON_US, now=1.0)
    assert gate.observe(ledger_us=NOON_US + year_us, now=2.0) is not None
    assert not gate.is_open


def test_two_clocks_that_answer_in_turn_close_the_gate() -> None:
    gate = followed()
    closed = 0
    for second in range(1, 3600):
        gate.observe(ledger_us=NOON_US + second * 1_000_000 - 2 * HOUR_US * (second % 2), now=float(second))
        closed += not gate.is_open
    assert closed > 1700


def test_a_leap_ahead_long_after_one_back_closes_the_gate_wherever_it_leads() -> None:
    gate = followed()
    gate.observe(ledger_us=NOON_US - 2 * HOUR_US, now=0.0)
    gate.observe(ledger_us=NOON_US + HOUR_US, now=2 * 3600.0 + 3600.0)
    assert gate.observe(ledger_us=NOON_US + 3 * HOUR_US + 1_000_000, now=3 * 3600.0 + 1) is not None
    assert not gate.is_open


def test_a_leap_ahead_that_goes_beyond_where_the_clock_was_closes_the_gate() -> None:
    gate = followed()
    gate.observe(ledger_us=NOON_US - 2 * HOUR_US, now=0.0)
    assert gate.observe(ledger_us=NOON_US + 2 * HOUR_US, now=1.0) is not None
    assert not gate.is_open


def test_it_opens_again_when_the_clock_is_back() -> None:
    gate = ClockGate()
    gate.observe(ledger_us=NOON_US, now=0.0)
    gate.observe(ledger_us=NOON_US + 24 * HOUR_US, now=1.0)
    assert gate.observe(ledger_us=NOON_US + 2_000_000, now=2.0) is None
    assert gate.is_open


def test_a_leap_is_not_forgotten_because_it_lasts() -> None:
    gate = ClockGate()
    gate.observe(ledger_us=NOON_US, now=0.0)
    for second in range(1, 100):
        gate.observe(ledger_us=NOON_US + 2 * HOUR_US + second * 1_000_000, now=float(second))
        assert not gate.is_open


def test_a_clock_that_drifts_slowly_is_followed() -> None:
    gate = ClockGate()
    ledger_us = NOON_US
    for minute in range(24 * 60 * 30):
        ledger_us += 61_000_000  # a second too much each minute: twelve hours in a month
        assert gate.observe(ledger_us=ledger_us, now=60.0 * (minute + 1)) is None


def test_contact_lasts_while_every_call_is_answered() -> None:
    contact = Contact(longest_gap_s=5.0)
    for second in range(11):
        contact.answered(float(second))
    assert contact.lasted_s(10.0) == 10.0


def test_an_unanswered_call_breaks_contact() -> None:
    contact = Contact(longest_gap_s=5.0)
    contact.answered(0.0)
    contact.unanswered()
    assert contact.lasted_s(1.0) == 0.0
    contact.answered(2.0)
    assert contact.lasted_s(3.0) == 1.0


def test_a_pause_breaks_contact_although_nothing_failed() -> None:
    contact = Contact(longest_gap_s=5.0)
    contact.answered(0.0)
    contact.answered(4.0)
    assert contact.lasted_s(60.0) == 0.0
    contact.answered(60.0)
    assert contact.lasted_s(61.0) == 1.0
