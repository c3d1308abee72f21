"""Days on which a schedule is not due: ``leave_out=["SAT", "SUN", "12-25", "2026-12-24..2026-12-31"]``.

===========================  =========================================
``"SAT"``, ``"Sunday"``      that day of every week
``"12-25"``                  that day of every year
``"12-24..01-02"``           those days of every year, both ends included
``"2026-12-25"``, `date`     that day once
``"2026-12-24..2026-12-31"`` those days once, both ends included
===========================  =========================================

Days are those of the schedule's time zone. The date of the scheduled local time counts: a time inside a gap belongs to
its own date, even if the first instant after the gap is on the next day.

Days are counted from 1970-01-01 as day 0. Due times on a day that is left out are not moved to another day.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from fencepost.core.schedules.base import FIRST_DAY, LAST_DAY
from fencepost.errors import InvalidSchedule

LeaveOut = str | date

_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_YEARLY = re.compile(r"\d\d-\d\d")
_ONCE = re.compile(r"\d{4}-\d\d-\d\d")
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday; Monday is 0
_LEAP_YEAR = 2024  # stands for every year, because it has a 29 February
_HELP = "write a weekday ('SAT'), a day of every year ('12-25'), a date ('2026-12-25') or two with .. between them"


@dataclass(frozen=True, slots=True)
class Calendar:
    """The days that are left out."""

    weekdays: frozenset[int]
    yearly: frozenset[tuple[int, int]]
    ranges: tuple[tuple[int, int], ...]
    """Disjoint and ascending; both ends are included."""

    def __bool__(self) -> bool:
        return bool(self.weekdays or self.yearly or self.ranges)

    def is_open(self, day: int) -> bool:
        """Whether the schedule may be due on this day."""
        return not self._recurs_on(day) and self._range_of(day) is None

    def next_open(self, day: int) -> int:
        """Return the first open day from `day` on; a day after the end of the calendar if there is none."""
        while day <= LAST_DAY:
            closed = self._range_of(day)
            if closed is not None:
                day = closed[1] + 1
            elif self._recurs_on(day):
                day += 1
            else:
                break
        return day

    def last_open(self, day: int) -> int:
        """Return the last open day up to `day`; a day before the start of the calendar if there is none."""
        while day >= FIRST_DAY:
            closed = self._range_of(day)
            if closed is not None:
                day = closed[0] - 1
            elif self._recurs_on(day):
                day -= 1
            else:
                break
        return day

    def _recurs_on(self, day: int) -> bool:
        if (day + _EPOCH_WEEKDAY) % 7 in self.weekdays:
            return True
        if not self.yearly:
            return False
        at = date_of(day)
        return (at.month, at.day) in self.yearly

    def _range_of(self, day: int) -> tuple[int, int] | None:
        index = bisect_right(self.ranges, (day, LAST_DAY)) - 1
        if index >= 0 and day <= self.ranges[index][1]:
            return self.ranges[index]
        return None


def date_of(day: int) -> date:
    """Return the date of a day counted from 1970."""
    return date.fromordinal(day + _EPOCH_ORDINAL)


def day_of(at: date) -> int:
    """Return the number of days from 1970 to a date."""
    return at.toordinal() - _EPOCH_ORDINAL


def spelled_items(items: Iterable[LeaveOut] | LeaveOut) -> tuple[str, ...]:
    """Normalize the spelling and order of `leave_out`; refuse invalid days."""
    if isinstance(items, str | date):
        items = [items]
    if not isinstance(items, Iterable):
        raise InvalidSchedule(f"leave_out {items!r} is not a list of days; {_HELP}")
    spelled = tuple(sorted({_spelled_item(item) for item in items}))
    calendar_of(spelled)
    return spelled


@lru_cache(maxsize=1024)
def calendar_of(items: tuple[str, ...]) -> Calendar:
    """Create the calendar for items that `spelled_items` has normalized."""
    weekdays: set[int] = set()
    yearly: set[tuple[int, int]] = set()
    ranges: list[tuple[int, int]] = []
    for item in items:
        first, _, last = item.partition("..")
        if first in _WEEKDAY_OF and not last:
            weekdays.add(_WEEKDAY_OF[first])
        elif _YEARLY.fullmatch(first):
            yearly.update(_days_of_year(item, first, last or first))
        else:
            ranges.append(_range(item, first, last or first))
    return Calendar(frozenset(weekdays), frozenset(yearly), _merged(ranges))


_WEEKDAY_OF = {name[:3]: number for number, name in enumerate(_WEEKDAYS)}


def _spelled_item(item: object) -> str:
    if type(item) is date:
        return item.isoformat()
    if not isinstance(item, str):
        raise _no_day(item)
    text = "..".join(part.strip() for part in item.upper().split(".."))
    return text[:3] if text in _WEEKDAYS else text


def _days_of_year(item: str, first: str, last: str) -> set[tuple[int, int]]:
    """Return the days from `first` to `last` in a leap year; the range may continue past the end of the year."""
    start, end = _parsed(item, f"{_LEAP_YEAR}-{first}"), _parsed(item, f"{_LEAP_YEAR}-{last}")
    length = (end - start).days % 366
    dates = (date(_LEAP_YEAR, 1, 1) + timedelta((start.timetuple().tm_yday - 1 + n) % 366) for n in range(length + 1))
    return {(at.month, at.day) for at in dates}


def _range(item: str, first: str, last: str) -> tuple[int, int]:
    start, end = day_of(_parsed(item, first)), day_of(_parsed(item, last))
    if end < start:
        raise InvalidSchedule(f"leave_out {item!r} ends before it begins")
    return start, end


def _merged(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _parsed(item: str, text: str) -> date:
    try:
        return date.fromisoformat(text if _ONCE.fullmatch(text) else "")
    except ValueError:
        raise _no_day(item) from None


def _no_day(item: object) -> InvalidSchedule:
    return InvalidSchedule(f"leave_out {item!r} is not a valid day; {_HELP}")
