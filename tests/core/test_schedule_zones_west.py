"""Cron schedules against the oracle, around every change of odd zones; the other half is in the file of the east."""

import pytest

from fencepost.core.schedule import cron
from tests.core.schedule_oracle import ODD_ZONES_EAST, ODD_ZONES_WEST, check_zone


@pytest.mark.parametrize("zone", ODD_ZONES_WEST)
def test_a_hundred_expressions_are_due_as_the_oracle_says_around_every_change(zone: str) -> None:
    assert check_zone(zone, cron) >= 100


def test_the_zones_are_many() -> None:
    assert len({*ODD_ZONES_EAST, *ODD_ZONES_WEST}) >= 40
