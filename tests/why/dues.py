"""When a schedule is due, found by looking at the clock each quarter of an hour. Shares no code with the schedules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE_US = 60_000_000
_QUARTER_US = 15 * MINUTE_US
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_QUARTER = timedelta(minutes=15)  # due times and changes of the clocks are at quarters


@dataclass(frozen=True, slots=True)
class Daily:
    """At these minutes of these hours, by the clocks of a zone.

    A *fixed* time is due once a day: at the first quarter at which the clocks show it, or a later time. Others
    (``*/30``) are due whenever the clocks show them: twice when an hour is repeated, never when it is left out.
    """

    hour: int
    minutes: tuple[int, ...]
    zone: str
    is_fixed: bool = True

    @property
    def cron(self) -> str:
        return f"{self.minutes[0]} {self.hour} * * *" if self.is_fixed else f"*/{self.minutes[1]} {self.hour} * * *"


@dataclass(frozen=True, slots=True)
class Hourly:
    """Every so many hours, counted from 1970."""

    hours: int


Form = Daily | Hourly


@lru_cache(maxsize=1000)
def dues(form: Form, after_us: int, until_us: int) -> tuple[int, ...]:
    """Return the due times in (after, until]."""
    if isinstance(form, Hourly):
        step_us = form.hours * 60 * MINUTE_US
        return tuple(range((after_us // step_us + 1) * step_us, until_us + 1, step_us))
    found = _fixed(form, after_us, until_us) if form.is_fixed else _shown(form, after_us, until_us)
    return tuple(each for each in found if after_us < each <= until_us)


def _quarters(after_us: int, until_us: int, zone: str) -> Iterator[tuple[int, datetime]]:
    at = _EPOCH + timedelta(microseconds=after_us // _QUARTER_US * _QUARTER_US)
    place = ZoneInfo(zone)
    while (at_us := (at - _EPOCH) // timedelta(microseconds=1)) <= until_us:
        yield at_us, at.astimezone(place)
        at += _QUARTER


def _shown(form: Daily, after_us: int, until_us: int) -> Iterator[int]:
    for at_us, shown in _quarters(after_us, until_us, form.zone):
        if shown.hour == form.hour and shown.minute in form.minutes:
            yield at_us


def _fixed(form: Daily, after_us: int, until_us: int) -> Iterator[int]:
    last: date | None = None
    wanted = (form.hour, form.minutes[0])
    for at_us, shown in _quarters(after_us - 24 * 60 * MINUTE_US, until_us, form.zone):
        if shown.date() != last and (shown.hour, shown.minute) >= wanted:
            last = shown.date()
            yield at_us
