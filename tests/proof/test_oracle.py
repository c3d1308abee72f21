"""The oracle of due times agrees with the schedules it judges, of which it shares no code."""

from __future__ import annotations

from random import Random

import pytest

from fencepost.core.schedule import cron, every
from fencepost.proof.oracle import cron_us, dues, every_us

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
BEGIN_US = 1_772_000_000_000_000


@pytest.mark.parametrize("interval", [0.1, 0.7, 1, 2, 2.5, 7, 60, 3600])
def test_grids_are_those_of_every(interval: float) -> None:
    random = Random(round(interval * 10))
    for _ in range(50):
        after = BEGIN_US + random.randrange(HOUR_US)
        until = after + random.randrange(300 * SECOND_US)
        assert list(every_us(interval, after_us=after, until_us=until)) == every(interval).dues(after, until, 10_000)


def test_a_grid_begins_at_its_start_and_leaves_the_first_instant_out() -> None:
    assert list(every_us(10, after_us=0, until_us=30 * SECOND_US)) == [10_000_000, 20_000_000, 30_000_000]
    assert list(every_us(10, after_us=0, until_us=25 * SECOND_US, start_us=5_000_000)) == [
        5_000_000,
        15_000_000,
        25_000_000,
    ]


MINUTELY = ["* * * * *", "*/5 * * * *", "0 2 * * *", "30 */6 * * 1-5", "15,45 9-17 * * *", "0 0 1 * *", "0 12 13 * 5"]
SECONDLY = ["*/15 * * * * *", "7-59/10 * * * * *", "30 */20 * * * *"]


@pytest.mark.parametrize("expression", [*MINUTELY, *SECONDLY, "0 0 * * 0", "0 0 * * 7"])
def test_cron_expressions_are_those_of_cron(expression: str) -> None:
    days = 40 if len(expression.split()) == 5 else 1
    until = BEGIN_US + days * 24 * HOUR_US
    expected = cron(expression).dues(BEGIN_US, until, 100_000)
    assert expected
    assert list(cron_us(expression, after_us=BEGIN_US, until_us=until)) == expected


@pytest.mark.parametrize("expression", ["* * * *", "60 * * * *", "0 0 L * *", "0 0 * * MON"])
def test_what_it_cannot_read_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"cron|invalid literal"):
        list(cron_us(expression, after_us=BEGIN_US, until_us=BEGIN_US + HOUR_US))


def test_times_become_due_times_of_a_schedule() -> None:
    assert [(due.schedule, due.job, due.at_us) for due in dues("nightly", "job", [1, 2])] == [
        ("nightly", "job", 1),
        ("nightly", "job", 2),
    ]
