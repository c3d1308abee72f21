"""An independent judge of cron schedules: slow, plain, and of no common code with what it judges.

It walks real time, instant by instant, asks zoneinfo for local times, and applies the definition of the
policies to what it saw: which local times came twice, and which never came. It reads cron fields by itself.
Local times are kept as columns of bytes, so that one walk serves a hundred expressions.
"""

import calendar
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

WORDS = ("auto", "first", "second", "both", "skip", "real")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
ALIASES = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *"}
SECOND_US = 1_000_000


def _listed(text: str) -> list[str]:
    return [one for line in text.split("\n") for one in line.split("|") if one]


def _words(text: str) -> list[str]:
    return text.split()


ODD_ZONES_EAST = _words("""
Africa/Cairo Africa/Casablanca Africa/Juba Africa/Khartoum Africa/Sao_Tome Africa/Windhoek Antarctica/Macquarie
Antarctica/Troll Asia/Almaty Asia/Amman Asia/Beirut Asia/Famagusta Asia/Gaza Asia/Hebron Asia/Hovd
Asia/Jerusalem Asia/Pyongyang Asia/Qostanay Asia/Tehran Asia/Tomsk Asia/Ulaanbaatar Australia/Adelaide
Australia/Lord_Howe
""")
ODD_ZONES_WEST = _words("""
America/Asuncion America/Caracas America/Chihuahua America/Grand_Turk America/Havana America/Metlakatla
America/Miquelon America/New_York America/Nuuk America/Ojinaga America/Port-au-Prince America/Punta_Arenas
America/Santiago America/Sao_Paulo America/Scoresbysund America/St_Johns Atlantic/Azores Europe/Chisinau
Europe/Dublin Europe/Istanbul Europe/Volgograd Pacific/Apia Pacific/Chatham Pacific/Easter Pacific/Fiji
Pacific/Norfolk Pacific/Tongatapu
""")

MINUTELY = _listed("""
* * * * *|*/5 * * * *|*/15 * * * *|7-59/10 * * * *|0 * * * *|30 * * * *|59 * * * *|0,30 * * * *|15-20 * * * *
1-59/2 * * * *|0 0 * * *|1 0 * * *|30 0 * * *|59 0 * * *|0 1 * * *|15 1 * * *|30 1 * * *|59 1 * * *|0 2 * * *
1 2 * * *|15 2 * * *|29 2 * * *|30 2 * * *|45 2 * * *|59 2 * * *|0 3 * * *|1 3 * * *|30 3 * * *|0 4 * * *
0 5 * * *|0 12 * * *|0 22 * * *|30 22 * * *|0 23 * * *|30 23 * * *|45 23 * * *|59 23 * * *|0,30 2 * * *
0,30 0-4 * * *|0 0,1,2,3,4 * * *|5,35 1,2 * * *|0-59 2 * * *|0-59 0 * * *|50-59 1 * * *|0-10 3 * * *
0-59 23 * * *|0 9-17 * * *|0 0-23 * * *|30 0-23 * * *|15,45 0-23 * * *|0 */2 * * *|0 1/2 * * *|30 */3 * * *
*/10 2 * * *|*/10 1 * * *|*/10 0 * * *|*/10 23 * * *|*/30 1-3 * * *|*/7 */5 * * *|10 */1 * * *|0 2 * * SUN
30 2 * * SUN|30 1 * * 7|0 0 * * SUN|30 0 * * SAT|30 23 * * SAT|30 23 * * FRI|0 0 * * MON-FRI
45 2 * * MON,WED,SUN|*/20 * * * SAT,SUN|30 2 * * SUN#1|30 2 * * SUN#2|30 1 * * 0L|30 2 * * 0L|0 0 * * FRI#4
59 23 * * 4L|0 3 * * 0#3|30 0 * * 0#5|15 * * * 0L|0 1 * * 5L|0 0 1 * *|30 2 1 * *|0 0 L * *|30 23 L * *
0 2 LW * *|30 2 25-31 3 *|30 1 25-31 10 *|0 0 1-7 * SUN|30 2 1 4 SUN|0 0 */2 * *|30 2 */2 * SUN|0 12 29 2 *
30 2 8-14 MAR SUN|30 1 1-7 NOV SUN|0 0 * JAN-JUN *|*/30 2 * 3,4,9,10,11 *|0 3 31 * *|@hourly|@daily|@weekly
""")
SECONDLY = _listed("""
0 * * * * *|*/5 * * * * *|*/7 */7 * * * *|30 30 2 * * *|59 59 1 * * *|0 0 2 * * *|1 0 3 * * *|0 0 3 * * *
59 59 * * * *|15,45 0,59 0-4 * * *|* 30 2 * * *|* 0 3 * * *|30 */5 1-3 * * *|59 59 23 * * *|0-2 0 0 * * *
0 59/1 1 * * *|58-59 29 1-2 * * SUN|*/20 30 * * * 0L
""")


class Expression:
    """A cron expression, read plainly."""

    def __init__(self, text: str) -> None:
        fields = ALIASES.get(text, text).split()
        second, minute, hour, self.dom, month, self.dow = ["0", *fields] if len(fields) == 5 else fields
        self.seconds, self.minutes = _numbers(second, 0, 59), _numbers(minute, 0, 59)
        self.hours, self.months = _numbers(hour, 0, 23), _numbers(month, 1, 12, MONTHS, 1)
        self.is_fixed = not any(sign in minute + hour for sign in "*/")
        self._is_on: dict[date, bool] = {}
        self.both_days = self.dom[0] == "*" or self.dow[0] == "*"

    def is_on(self, at: date) -> bool:
        if at not in self._is_on:
            self._is_on[at] = self._judge_day(at)
        return self._is_on[at]

    def _judge_day(self, at: date) -> bool:
        if at.month not in self.months:
            return False
        by_month = any(_is_day_of_month(term, at) for term in self.dom.split(","))
        by_week = any(_is_day_of_week(term, at) for term in self.dow.split(","))
        return by_month and by_week if self.both_days else by_month or by_week

    def is_at(self, moment: datetime) -> bool:
        named = moment.hour in self.hours and moment.minute in self.minutes and moment.second in self.seconds
        return named and self.is_on(moment.date())


@cache
def expression_of(text: str) -> Expression:
    return Expression(text)


@cache
def _numbers(field: str, low: int, high: int, names: tuple[str, ...] = (), base: int = 0) -> frozenset[int]:
    def number(text: str) -> int:
        return names.index(text) + base if text in names else int(text)

    found: set[int] = set()
    for term in field.split(","):
        body, _, step = term.partition("/")
        first, dash, last = body.partition("-")
        if body == "*":
            start, end = low, high
        else:
            start = number(first)
            end = number(last) if dash else high if step else start
        found |= {value for value in range(start, end + 1) if (value - start) % int(step or 1) == 0}
    return frozenset(found)


def _is_day_of_month(term: str, at: date) -> bool:
    last = calendar.monthrange(at.year, at.month)[1]
    if term == "L":
        return at.day == last
    if term == "LW":
        weekdays = [day for day in range(1, last + 1) if date(at.year, at.month, day).weekday() < 5]
        return at.day == weekdays[-1]
    return at.day in _numbers(term, 1, 31)


def _is_day_of_week(term: str, at: date) -> bool:
    sunday_first = at.isoweekday() % 7
    if term.endswith("L"):
        return int(term[:-1]) % 7 == sunday_first and at.day == _same_weekdays(at)[-1]
    if "#" in term:
        name, nth = term.split("#")
        wanted = DAYS.index(name) if name in DAYS else int(name) % 7
        return wanted == sunday_first and _same_weekdays(at).index(at.day) + 1 == int(nth)
    return sunday_first in {value % 7 for value in _numbers(term, 0, 7, DAYS)}


def _same_weekdays(at: date) -> list[int]:
    length = calendar.monthrange(at.year, at.month)[1]
    return [day for day in range(1, length + 1) if date(at.year, at.month, day).weekday() == at.weekday()]


def is_left_out(at: date, items: Iterable[str]) -> bool:
    """Whether `leave_out` names this day: weekdays, days of the year, dates, and stretches of either."""
    day, weekday = at.isoformat(), DAYS[at.isoweekday() % 7]
    for item in items:
        first, _, last = item.partition("..")
        last, shown = last or first, day[5:] if len(first) == 5 else day
        if item == weekday or first <= shown <= last or (last < first and len(first) == 5 and not last < shown < first):
            return True
    return False


@dataclass(frozen=True)
class Change:
    """The first second with another offset."""

    at_s: int
    is_gap: bool


def changes(zone: str, first_year: int, last_year: int) -> list[Change]:
    """Find the changes of a zone's offset: day by day, then second by second by halves."""
    tz, found = ZoneInfo(zone), []
    start_s = int(datetime(first_year, 1, 1, tzinfo=UTC).timestamp())
    end_s = int(datetime(last_year + 1, 1, 1, tzinfo=UTC).timestamp())
    offsets = ((day_s, _offset(tz, day_s)) for day_s in range(start_s, end_s + 86_400, 86_400))
    for (day_s, before), (next_day_s, after) in pairwise(offsets):
        if before == after:
            continue
        low, high = day_s, next_day_s
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _offset(tz, middle) == before else (low, middle)
        found.append(Change(high, is_gap=after > before))
    return found


def _offset(tz: ZoneInfo, at_s: int) -> timedelta:
    return datetime.fromtimestamp(at_s, tz).utcoffset() or timedelta()


class Walk:
    """Every instant of [from, until) by steps, and its local time."""

    def __init__(self, zone: str | ZoneInfo, from_s: int, until_s: int, *, step_s: int) -> None:
        tz = ZoneInfo(zone) if isinstance(zone, str) else zone
        self.from_s, self.step_s = from_s, step_s
        walls = _walls(tz, range(from_s, until_s, step_s))
        first_day = min(walls) // 86_400
        self.dates = [date.fromordinal(day) for day in range(first_day, max(walls) // 86_400 + 1)]
        self.seconds = bytes([wall % 60 for wall in walls])
        self.minutes = bytes([wall // 60 % 60 for wall in walls])
        self.hours = bytes([wall // 3600 % 24 for wall in walls])
        self.days = bytes([wall // 86_400 - first_day for wall in walls])
        self.first, self.last = _first_and_last(walls)
        self.gaps = list(_gaps(walls, step_s))

    def dues(self, expression: Expression, word: str, leave_out: tuple[str, ...] = ()) -> list[int]:
        """Say at which of the instants it is due."""
        word = ("first" if expression.is_fixed else "real") if word == "auto" else word
        days = [expression.is_on(at) and not is_left_out(at, leave_out) for at in self.dates]
        due = (
            _where(self.seconds, expression.seconds)
            & _where(self.minutes, expression.minutes)
            & _where(self.hours, expression.hours)
            & _where(self.days, {index for index, is_on in enumerate(days) if is_on})
        )
        if word in ("first", "skip"):
            due &= self.first
        if word == "second":
            due &= self.last
        found = {match.start() for match in re.finditer(b"\1", due.to_bytes(len(self.days)))}
        if word in ("first", "second", "both"):
            for index, missing in self.gaps:
                named = (one for one in missing if expression.is_at(one) and not is_left_out(one.date(), leave_out))
                if next(named, None):
                    found.add(index)
        return [self.from_s + index * self.step_s for index in sorted(found)]


def _walls(tz: ZoneInfo, instants: range) -> list[int]:
    """Return the local time of each instant, as seconds since the day 0 of the calendar.

    Of fifteen instants zoneinfo is asked for the first and the last; for those between only if these two differ by
    another time than the instants do: then the clocks were changed.
    """
    walls: list[int] = []
    for index in range(0, len(instants), 15):
        some = instants[index : index + 15]
        first, last = _wall(tz, some[0]), _wall(tz, some[-1])
        if last - first == some[-1] - some[0]:
            walls += range(first, last + 1, instants.step)
        else:
            walls += [_wall(tz, at_s) for at_s in some]
    return walls


def _wall(tz: ZoneInfo, at_s: int) -> int:
    at = datetime.fromtimestamp(at_s, tz)
    return ((at.toordinal() * 24 + at.hour) * 60 + at.minute) * 60 + at.second


def _where(column: bytes, wanted: Collection[int]) -> int:
    """Return a number whose bytes are 1 where the column holds one of the wanted values."""
    table = bytearray(256)
    for value in wanted:
        table[value] = 1
    return int.from_bytes(column.translate(table))


def _first_and_last(walls: list[int]) -> tuple[int, int]:
    first, last = bytearray(b"\1" * len(walls)), bytearray(b"\1" * len(walls))
    if len(set(walls)) < len(walls):
        times, seen = Counter(walls), Counter[int]()
        for index, wall in enumerate(walls):
            if times[wall] > 1:
                seen[wall] += 1
                first[index], last[index] = seen[wall] == 1, seen[wall] == times[wall]
    return int.from_bytes(first), int.from_bytes(last)


def _gaps(walls: list[int], step_s: int) -> Iterator[tuple[int, list[datetime]]]:
    for index, (before, wall) in enumerate(pairwise(walls), start=1):
        if wall > before + step_s:
            missing = range(before + step_s, wall, step_s)
            yield index, [datetime.fromordinal(one // 86_400) + timedelta(seconds=one % 86_400) for one in missing]


def check_zone(zone: str, make: Callable[..., Any], years: tuple[int, int] = (2015, 2035)) -> int:
    """Judge schedules made by `make` two days around every change of a zone in these years; count the cases."""
    cases, all_changes = 0, changes(zone, *years)
    made = cache(lambda text, word: make(text, tz=zone, dst=word))  # one schedule answers for all changes, as in a node
    for turn, change in enumerate(all_changes):
        walk = Walk(zone, change.at_s - 2 * 86_400, change.at_s + 2 * 86_400, step_s=60)
        for text, word in _met_at(turn, len(all_changes)):
            judge(made(text, word), walk.dues(expression_of(text), word), walk, around_s=change.at_s)
            cases += 1
    return cases


def _met_at(turn: int, changes: int) -> Iterator[tuple[str, str]]:
    """Say which expressions meet which policies at a change.

    Where changes are few, all meet all. Where they are many, each expression meets each policy at least once: a part
    of the expressions, a half to a sixth, is taken for as many changes as there are policies, then the next part. With
    ``FENCEPOST_ZONES=full`` each expression is taken at every change.
    """
    rounds = len(WORDS)
    sparing = 1 if os.environ.get("FENCEPOST_ZONES") == "full" else max(1, min(6, changes // rounds))
    for number, text in enumerate(MINUTELY):
        if changes < rounds:
            yield from ((text, word) for word in WORDS)
        elif (turn // rounds + number) % sparing == 0:
            yield text, WORDS[(turn + number) % rounds]


def check_seconds(zone: str, make: Callable[..., Any], years: tuple[int, int]) -> int:
    """Judge expressions with seconds by a walk of seconds, hours around every change; count the cases."""
    cases = 0
    for change in changes(zone, *years):
        walk = Walk(zone, change.at_s - 3 * 3600, change.at_s + 3 * 3600, step_s=1)
        for text in SECONDLY:
            for word in WORDS:
                expected = walk.dues(expression_of(text), word)
                judge(make(text, tz=zone, dst=word), expected, walk, around_s=change.at_s)
                cases += 1
    return cases


def judge(schedule: Any, expected_s: list[int], walk: Walk, *, around_s: int, near: int = 24) -> None:
    """Compare all answers of a schedule with what the walk found; where dues are dense, those near the change."""
    expected = [due_s * SECOND_US for due_s in expected_s]
    after = walk.from_s * SECOND_US - 1
    until = after + len(walk.days) * walk.step_s * SECOND_US
    assert schedule.count(after, until) == len(expected), schedule
    middle = bisect_right(expected, around_s * SECOND_US)
    if middle > near:
        after = expected[middle - near - 1]
    if len(expected) > middle + near:
        until = expected[middle + near - 1]
    expected = [due for due in expected if after < due <= until]
    assert schedule.dues(after, until, 10_000) == expected, schedule
    middle = bisect_right(expected, around_s * SECOND_US)
    for before, due in list(pairwise(expected))[max(0, middle - 3) : middle + 3]:
        assert schedule.due_before(due) == before, schedule
        assert schedule.due_after(before) == schedule.due_after(due - 1) == due, schedule
