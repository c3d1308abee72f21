"""An independent oracle of due times, for the simple schedules that simulation and chaos use. Only in UTC.

It shares no code with the schedules that it checks: an interval is counted from its start, and for a cron expression
every minute or second is tested. Cron expressions have five fields, or six with seconds first, of numbers, ``*``,
lists, ranges and steps. Names and the letters ``L``, ``W`` and ``#`` are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from fencepost.proof.evidence import Due

SECOND_US = 1_000_000
_RANGES = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def every_us(interval_s: float, *, after_us: int, until_us: int, start_us: int = 0) -> Iterator[int]:
    """Return the due times of an interval in (after, until]."""
    interval_us = round(interval_s * SECOND_US)
    number = max(0, -((start_us - after_us - 1) // interval_us))
    while (due_us := start_us + number * interval_us) <= until_us:
        if due_us > after_us:
            yield due_us
        number += 1


def cron_us(expression: str, *, after_us: int, until_us: int) -> Iterator[int]:
    """Return the due times of a cron expression in (after, until], in UTC."""
    fields = expression.split()
    has_seconds = len(fields) == 6
    seconds, minutes, hours, days, months, weekdays = _read(fields if has_seconds else ["0", *fields])
    step = timedelta(seconds=1) if has_seconds else timedelta(minutes=1)
    is_either = not fields[-3].startswith("*") and not fields[-1].startswith("*")
    at = _first(after_us, step)
    while (at_us := _us(at)) <= until_us:
        on_day, on_weekday = at.day in days, at.isoweekday() % 7 in weekdays
        is_on = (on_day or on_weekday) if is_either else (on_day and on_weekday)
        if is_on and at.month in months and at.hour in hours and at.minute in minutes and at.second in seconds:
            yield at_us
        at += step


def dues(schedule: str, job: str, times_us: Iterable[int]) -> tuple[Due, ...]:
    """Return these times as due times of a schedule and its job."""
    return tuple(Due(schedule, job, at_us) for at_us in times_us)


def _first(after_us: int, step: timedelta) -> datetime:
    """Return the first whole step after a time."""
    step_us = round(step.total_seconds() * SECOND_US)
    first_us = (after_us // step_us + 1) * step_us
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=first_us)


def _us(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _read(fields: list[str]) -> list[frozenset[int]]:
    if len(fields) != len(_RANGES):
        raise ValueError(f"a cron expression has five or six fields, not {' '.join(fields)!r}")
    read = [_numbers(field, *bounds) for field, bounds in zip(fields, _RANGES, strict=True)]
    return [*read[:-1], frozenset(number % 7 for number in read[-1])]


def _numbers(field: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for term in field.split(","):
        body, slash, step = term.partition("/")
        first, dash, last = body.partition("-")
        begin = low if body == "*" else int(first)
        end = high if body == "*" or (slash and not dash) else int(last if dash else first)
        found.update(range(begin, end + 1, int(step or 1)))
    if not found <= set(range(low, high + 1)):
        raise ValueError(f"cron field {field!r} is not within {low} to {high}")
    return frozenset(found)
