"""When the jobs of lives are due, counted once more without any code of the schedules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from fencepost.ledger.pruning import DAY_S
from fencepost.proof.oracle import every_us
from fencepost.testing.simulation.lives.jobs import HOUR, MINUTE, WEEKDAY
from fencepost.testing.simulation.lives.plan import ZONE, LifeJob

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def dues_of(job: LifeJob, *, after_us: int, until_us: int) -> Iterator[int]:
    """Return the instants in (after, until] at which a job is due."""
    if job.is_zoned:
        yield from _weekly(after_us, until_us)
    elif job.every_d:
        yield from every_us(job.every_d * DAY_S, after_us=after_us, until_us=until_us)


def next_due_us(job: LifeJob, after_us: int) -> int:
    """Return when it is due next."""
    return next(dues_of(job, after_us=after_us, until_us=after_us + round(15 * DAY_S * 1e6)))


def _weekly(after_us: int, until_us: int) -> Iterator[int]:
    zone = ZoneInfo(ZONE)
    day = (_EPOCH + timedelta(microseconds=after_us)).astimezone(zone).date() - timedelta(days=1)
    while True:
        at = datetime(day.year, day.month, day.day, HOUR, MINUTE, tzinfo=zone)
        at_us = (at.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
        if at_us > until_us:
            return
        if at_us > after_us and day.isoweekday() == WEEKDAY:
            yield at_us
        day += timedelta(days=1)
