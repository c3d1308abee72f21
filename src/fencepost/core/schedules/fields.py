"""The local times of a cron expression: which days, and which times of a day.

cronsim parses the fields and matches the days (`L`, `LW`, `5L`, `MON#2`, month and weekday names, and Debian's rule:
day-of-month and day-of-week must both match if either begins with a star, else one of them). Time zones do not matter
here: local time is a plain count of seconds since 1970-01-01 00:00 on the local clock, `wall_s`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field

from fencepost.core.schedules.base import DAY_S, FIRST_DAY, LAST_DAY
from fencepost.core.schedules.calendar import Calendar, calendar_of, date_of, day_of
from fencepost.core.tick import CRON_ALIASES
from fencepost.errors import InvalidSchedule

LONGEST = 400  # characters: far more than any useful expression has
_NAMES = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_SIZES = (60, 60, 24, 31, 12, 7)
_UNITS = ("s", "m", "h")
_HOLDS = (
    "0–59",
    "0–59",
    "0–23",
    "1–31, L (the last) or LW (the last weekday)",
    "1–12 or JAN–DEC",
    "0–7 or SUN–SAT, 5L (the last Friday) or FRI#2 (the second)",
)


def normalized(expression: object) -> str:
    """Return the expression in its normal form, or raise an error that names the wrong field."""
    if not isinstance(expression, str):
        raise InvalidSchedule(f"a cron expression must be a text, not {type(expression).__name__}")
    if len(expression) > LONGEST:
        raise InvalidSchedule(f"a cron expression has at most {LONGEST} characters; this one has {len(expression)}")
    text = " ".join(expression.split()).upper()
    text = text.lower() if text.startswith("@") else text
    _parsed(text)
    return text


def refuse_vain_steps(text: str) -> None:
    """Refuse ``*/90`` in a normalized expression: it matches only one value of the range, not every 90."""
    for number, field in enumerate(six_fields(text)):
        for term in field.split(","):
            _refuse_vain_step(text, number, term)


def _refuse_vain_step(text: str, number: int, term: str) -> None:
    body, slash, step = term.partition("/")
    if body != "*" or not slash or int(step) <= _SIZES[number]:
        return
    first = min(Field(number).parse(term))
    interval = f"; for intervals, use every('{step}{_UNITS[number]}')" if number < len(_UNITS) else ""
    raise InvalidSchedule(
        f"cron {text!r}: there are {_SIZES[number]} values of {_NAMES[number]}, so {term} matches only {first}; "
        f"if that is intended, write {first}{interval}"
    )


def is_fixed_time(text: str) -> bool:
    """Whether the expression consists of fixed times: neither hour nor minute contains a star or a step."""
    _, minute, hour, *_ = six_fields(text)
    return not set("*/") & set(minute + hour)


@lru_cache(maxsize=4096)
def wall_times(text: str, leave_out: tuple[str, ...]) -> WallTimes:
    """Return the local times of a normalized expression. Results are cached."""
    return WallTimes(_parsed(text), calendar_of(leave_out))


class WallTimes:
    """The local times that match an expression, on days that are not left out."""

    __slots__ = ("_days", "_minutes", "_per_day", "_seconds")

    def __init__(self, sim: CronSim, calendar: Calendar) -> None:
        self._days = _Days(sim, calendar)
        self._minutes = tuple(sorted(60 * hour + minute for hour in sim.hours for minute in sim.minutes))
        self._seconds = tuple(sorted(sim.seconds))
        self._per_day = len(self._minutes) * len(self._seconds)

    def first_from(self, wall_s: int) -> int | None:
        """Return the first matching time at or after `wall_s`."""
        day, time_s = divmod(wall_s, DAY_S)
        due_day = self._days.first_from(day)
        if due_day == day:
            index = self._index(time_s)
            if index < self._per_day:
                return day * DAY_S + self._time_s(index)
            due_day = self._days.first_from(day + 1)
        return None if due_day is None else due_day * DAY_S + self._time_s(0)

    def last_until(self, wall_s: int) -> int | None:
        """Return the last matching time at or before `wall_s`."""
        day, time_s = divmod(wall_s, DAY_S)
        due_day = self._days.last_until(day)
        if due_day == day:
            index = self._index(time_s + 1) - 1
            if index >= 0:
                return day * DAY_S + self._time_s(index)
            due_day = self._days.last_until(day - 1)
        return None if due_day is None else due_day * DAY_S + self._time_s(self._per_day - 1)

    def count(self, from_wall_s: int, until_wall_s: int) -> int:
        """Return the number of matching times in [from, until)."""
        if until_wall_s <= from_wall_s:
            return 0
        (first, from_time_s), (last, until_time_s) = divmod(from_wall_s, DAY_S), divmod(until_wall_s, DAY_S)
        whole = self._days.count(first, last) * self._per_day
        before = self._index(from_time_s) if self._days.is_due(first) else 0
        beyond = self._index(until_time_s) if self._days.is_due(last) else 0
        return whole - before + beyond

    def _index(self, time_s: int) -> int:
        """Return the number of matching times of a day before `time_s`."""
        minute, second = divmod(time_s, 60)
        index = bisect_left(self._minutes, minute)
        whole = index * len(self._seconds)
        if index < len(self._minutes) and self._minutes[index] == minute:
            return whole + bisect_left(self._seconds, second)
        return whole

    def _time_s(self, index: int) -> int:
        minute, second = divmod(index, len(self._seconds))
        return self._minutes[minute] * 60 + self._seconds[second]


class _Days:
    """The days that match an expression and are not left out, counted from 1970."""

    __slots__ = ("_ahead", "_behind", "_calendar", "_every_day", "_months", "_sim")

    def __init__(self, sim: CronSim, calendar: Calendar) -> None:
        self._sim = sim
        self._calendar = calendar
        self._months = tuple(sorted(sim.months))
        self._every_day = sim.parts[3:] == ["*", "*", "*"] and not calendar
        # The last results: each is valid for every day between the argument and the result. They are replaced as a
        # whole, so that threads can share them.
        self._ahead = self._behind = (1, 0)

    def is_due(self, day: int) -> bool:
        return self._every_day or self._matches(day)

    def first_from(self, day: int) -> int | None:
        if self._every_day:
            return day if day <= LAST_DAY else None
        asked, answer = self._ahead
        if asked <= day <= answer:
            return answer if answer <= LAST_DAY else None
        found = self._search_ahead(day)
        self._ahead = (day, found)
        return found if found <= LAST_DAY else None

    def last_until(self, day: int) -> int | None:
        if self._every_day:
            return day if day >= FIRST_DAY else None
        asked, answer = self._behind
        if answer <= day <= asked:
            return answer if answer >= FIRST_DAY else None
        found = self._search_behind(day)
        self._behind = (day, found)
        return found if found >= FIRST_DAY else None

    def count(self, first: int, until: int) -> int:
        """Return the number of matching days in [first, until)."""
        if self._every_day:
            return until - first
        return sum(1 for day in range(first, until) if self._matches(day))

    def _matches(self, day: int) -> bool:
        at = date_of(day)
        return at.month in self._sim.months and self._sim.match_day(at) and self._calendar.is_open(day)

    def _search_ahead(self, day: int) -> int:
        """Return the first matching day from `day` on; a day after the end of the calendar if there is none."""
        while day <= LAST_DAY:
            at = date_of(day)
            if at.month not in self._sim.months:
                day = self._next_month(at.year, at.month)
            elif not self._sim.match_day(at):
                day += 1
            elif (opens := self._calendar.next_open(day)) > day:
                day = opens
            else:
                break
        return day

    def _search_behind(self, day: int) -> int:
        """Return the last matching day up to `day`; a day before the start of the calendar if there is none."""
        while day >= FIRST_DAY:
            at = date_of(day)
            if at.month not in self._sim.months:
                day -= at.day
            elif not self._sim.match_day(at):
                day -= 1
            elif (opened := self._calendar.last_open(day)) < day:
                day = opened
            else:
                break
        return day

    def _next_month(self, year: int, month: int) -> int:
        """Return the first day of the next matching month."""
        index = bisect_right(self._months, month)
        if index == len(self._months):
            year, index = year + 1, 0
        return day_of(date_of(0).replace(year=year, month=self._months[index]))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> CronSim:
    fields = six_fields(text)
    for number, field in enumerate(fields):
        _check_field(text, number, field)
    plain = [_without_vain_steps(number, field) for number, field in enumerate(fields)]
    try:
        return CronSim(" ".join(plain), datetime(1970, 1, 1))
    except CronSimError:
        raise InvalidSchedule(f"cron {text!r} can never match: no such month has such a day") from None


def six_fields(text: str) -> list[str]:
    """Return the six fields; an expression with five gets the second 0."""
    fields = _expanded(text).split()
    if len(fields) == 5:
        return ["0", *fields]
    if len(fields) == 6:
        return fields
    raise InvalidSchedule(
        f"cron {text!r} has {len(fields)} fields; write five (minute hour day-of-month month day-of-week) "
        "or six (the second first)"
    )


def _expanded(text: str) -> str:
    if not text.startswith("@"):
        return text
    if text not in CRON_ALIASES:
        known = ", ".join(sorted(CRON_ALIASES))
        raise InvalidSchedule(f"cron {text!r} is not known; there are {known}; for intervals, use every('5m')")
    return CRON_ALIASES[text]


def _check_field(text: str, number: int, field: str) -> None:
    if not _is_field(number, field):
        raise InvalidSchedule(
            f"cron {text!r}: {field!r} is not a valid {_NAMES[number]}; allowed are {_HOLDS[number]}, "
            "and lists (1,2), ranges (1-5) and steps (*/5) of them"
        )


def _without_vain_steps(number: int, field: str) -> str:
    """Replace ``5-5/10`` with ``5``: cronsim would treat it as ``5/10``, which continues to the end of the range."""
    terms = field.split(",")
    for index, term in enumerate(terms):
        body, slash, _ = term.partition("/")
        if slash and "-" in body and len(Field(number).parse(body)) == 1:
            terms[index] = body
    return ",".join(terms)


def _is_field(number: int, field: str) -> bool:
    try:
        return field.isascii() and bool(Field(number).parse(field))
    except (CronSimError, ValueError):
        return False  # a ValueError: more digits than Python accepts
