"""Cron schedules against the oracle, around every change of odd zones; the other half is in the file of the west."""

import pytest

from fencepost.core.schedule import cron
from tests.core.schedule_oracle import MINUTELY, ODD_ZONES_EAST, check_zone


@pytest.mark.parametrize("zone", ODD_ZONES_EAST)
def test_a_hundred_expressions_are_due_as_the_oracle_says_around_every_change(zone: str) -> None:
    assert check_zone(zone, cron) >= len(set(MINUTELY)) == 100


@pytest.mark.parametrize(
    ("zone", "year"),
    [
        ("Asia/Kathmandu", 1986),
        ("Pacific/Kwajalein", 1993),
        ("Asia/Colombo", 1996),
        ("Asia/Tehran", 2006),
        ("America/Caracas", 2007),
        ("Asia/Dhaka", 2009),
        ("Africa/Cairo", 2010),
        ("Pacific/Apia", 2011),
        ("Pacific/Fakaofo", 2011),
        ("America/St_Johns", 2006),
        ("Pacific/Bougainville", 2014),
    ],
)
def test_changes_of_former_years_are_no_exception(zone: str, year: int) -> None:
    assert check_zone(zone, cron, (year - 1, year)) >= 100
