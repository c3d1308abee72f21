"""Time zones as stretches of constant offset, and what happens to local times when the offset changes.

The time of a zone is divided into *stretches*: instants with the same offset from UTC. Inside a stretch, local time
advances evenly. Between two stretches, the local clock jumps forward over a **gap** of times that do not exist, or
back, so that a **fold** of times comes twice::

      local   │      ╱            local   │       ╱
        03:00 │    ╱                03:00 │  ╱  ╱
              │    ┊ gap                  │╱┊ ╱  fold: 02:00–03:00 comes twice
        02:00 │  ╱                  02:00 │ ╱
              └──────── UTC               └──────── UTC

The `dst` option of a schedule decides about both:

========  =============================================  ==============================
`dst`     a time inside the gap                          a time inside the fold
========  =============================================  ==============================
first     is due at the first instant after the gap      is due when it comes first
second    is due at the first instant after the gap      is due when it comes again
both      is due at the first instant after the gap      is due both times
skip      is left out                                    is due when it comes first
real      is left out                                    is due both times
auto      as *first* for fixed times, else as *real*     (see `fencepost.core.schedules.cron`)
========  =============================================  ==============================

All times of one gap, and a time that is regularly due at the first instant after it, are together one due time.

**Assumed**, and true for every zone since 1970: two changes are at least a week apart, and no jump is longer than a
day. Offsets come from `zoneinfo`: the system's database, else the `tzdata` package. All nodes should have the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from fencepost.core.schedules.base import DAY_S, FIRST_YEAR, LAST_YEAR, SECOND_US
from fencepost.core.words import DstWord
from fencepost.errors import InvalidSchedule

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_MARGIN_S = 60 * 3600
"""How far the table of a year extends beyond it, so that it contains a fold at the turn of the year completely."""

_LOOK_EVERY_S = 3 * DAY_S  # less than the week between two changes: of two in between, none might be noticed


@dataclass(frozen=True, slots=True)
class Passes:
    """The meaning of a `dst` value."""

    after_gap: bool
    first: bool
    second: bool


DST: Mapping[DstWord, Passes] = {
    "first": Passes(after_gap=True, first=True, second=False),
    "second": Passes(after_gap=True, first=False, second=True),
    "both": Passes(after_gap=True, first=True, second=True),
    "skip": Passes(after_gap=False, first=True, second=False),
    "real": Passes(after_gap=False, first=True, second=True),
}


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The instant from which a time zone has another offset from UTC."""

    at_us: int
    before_s: int
    after_s: int

    @property
    def is_gap(self) -> bool:
        """Whether local times are skipped; otherwise they come twice."""
        return self.after_s > self.before_s


@dataclass(frozen=True, slots=True)
class Stretch:
    """Instants of one UTC year with the same offset: start ≤ instant < end, in seconds since 1970."""

    start_s: int
    end_s: int
    offset_s: int
    gap_s: int
    """How much local time was skipped right before the start."""
    new_from_s: int
    """Before this instant, local times come for the second time."""
    again_from_s: int
    """From this instant on, local times come again after the end."""

    def span(self, passes: Passes) -> tuple[int, int]:
        """Return the instants [from, until) whose local times count under `passes`."""
        return self.start_s if passes.second else self.new_from_s, self.end_s if passes.first else self.again_from_s


def zone_key(name: object) -> str:
    """Return `name` if the time zone database has it, else raise an error that suggests a similar name."""
    try:
        _zone(_plausible(name))
    except (LookupError, ValueError, OSError):
        raise InvalidSchedule(f"there is no time zone {name!r}{_suggested(name)}") from None
    return str(name)


def changes_of_offset(zone: str, year: int) -> list[OffsetChange]:
    """Return the changes of offset in `zone` during the (UTC) `year`."""
    if not FIRST_YEAR <= year <= LAST_YEAR:
        raise InvalidSchedule(f"the calendar runs from {FIRST_YEAR} to {LAST_YEAR}; {year} is outside")
    start_s, end_s = _year_start_s(year), _year_start_s(year + 1)
    return list(_changes(_zone(zone_key(zone)), start_s - 1, end_s - 1))


def local(zone: str, at_us: int) -> datetime:
    """Return the local time of an instant, with its offset and fold."""
    return (_EPOCH + timedelta(microseconds=at_us)).astimezone(_zone(zone))


def stretch_at(zone: str, at_s: int) -> Stretch:
    """Return the stretch that contains an instant."""
    return next(stretches_from(zone, at_s))


def stretches_from(zone: str, at_s: int) -> Iterator[Stretch]:
    """Yield the stretch of an instant, then all later ones until the end of the calendar."""
    year = _year_of(at_s)
    for stretch in _stretches(zone, year):
        if stretch.end_s > at_s:
            yield stretch
    for later in range(year + 1, LAST_YEAR + 1):
        yield from _stretches(zone, later)


def stretches_until(zone: str, at_s: int) -> Iterator[Stretch]:
    """Yield the stretch of an instant, then all earlier ones back to 1970."""
    year = _year_of(at_s)
    for stretch in reversed(_stretches(zone, year)):
        if stretch.start_s <= at_s:
            yield stretch
    for earlier in range(year - 1, FIRST_YEAR - 1, -1):
        yield from reversed(_stretches(zone, earlier))


@lru_cache(maxsize=1024)
def _zone(key: str) -> ZoneInfo:
    return ZoneInfo(key)


def _plausible(name: object) -> str:
    """Refuse names whose meaning depends on the machine, names that count leap seconds, and other types than str."""
    if not isinstance(name, str) or name.lower() in ("localtime", "local", "factory", "posixrules"):
        raise ValueError
    if name.lower().startswith(("posix/", "right/")):
        raise ValueError
    return name


def _suggested(name: object) -> str:
    known = sorted(available_timezones())
    wanted = str(name).strip().replace(" ", "_").lower()
    by_city = [key for key in known if key.lower().rpartition("/")[2] == wanted.rpartition("/")[2]]
    lowered = {key.lower(): key for key in known}
    close = [lowered[key] for key in get_close_matches(wanted, lowered, n=1, cutoff=0.75)]
    for guess in [key for key in close if key.lower() == wanted] + sorted(by_city, key=len) + close:
        return f"; did you mean {guess!r}?"
    return "; write it as 'UTC' or 'Asia/Seoul'"


@lru_cache(maxsize=8192)
def _stretches(zone: str, year: int) -> tuple[Stretch, ...]:
    """Divide one UTC year into stretches."""
    tz, first_s, end_s = _zone(zone), _year_start_s(year), _year_start_s(year + 1)
    changes = list(_changes(tz, first_s - _MARGIN_S, end_s + _MARGIN_S))
    steady = _offset_s(tz, first_s)
    opening = OffsetChange((first_s - _MARGIN_S) * SECOND_US, steady, steady)
    closing = OffsetChange((end_s + _MARGIN_S) * SECOND_US, 0, 0)
    if changes:
        opening = OffsetChange(opening.at_us, changes[0].before_s, changes[0].before_s)
    bounds = [opening, *changes, closing]
    cut = (_stretch(begin, end, first_s=first_s, end_s=end_s) for begin, end in pairwise(bounds))
    return tuple(stretch for stretch in cut if stretch.start_s < stretch.end_s)


def _stretch(begin: OffsetChange, end: OffsetChange, *, first_s: int, end_s: int) -> Stretch:
    real_start_s, real_end_s = begin.at_us // SECOND_US, end.at_us // SECOND_US
    start_s, until_s = max(real_start_s, first_s), min(real_end_s, end_s)
    repeated_s = max(0, begin.before_s - begin.after_s)
    to_repeat_s = max(0, end.before_s - end.after_s)
    return Stretch(
        start_s=start_s,
        end_s=until_s,
        offset_s=begin.after_s,
        gap_s=max(0, begin.after_s - begin.before_s) if start_s == real_start_s else 0,
        new_from_s=min(max(real_start_s + repeated_s, start_s), until_s),
        again_from_s=max(min(real_end_s - to_repeat_s, until_s), start_s),
    )


def _changes(tz: ZoneInfo, after_s: int, until_s: int) -> Iterator[OffsetChange]:
    """Yield the changes in (after, until]: compare the offsets every few days, and bisect where they differ."""
    before = _offset_s(tz, after_s)
    for begin_s in range(after_s, until_s, _LOOK_EVERY_S):
        end_s = min(begin_s + _LOOK_EVERY_S, until_s)
        after = _offset_s(tz, end_s)
        if after != before:
            yield from _halved(tz, begin_s, end_s)
        before = after


def _halved(tz: ZoneInfo, after_s: int, until_s: int) -> Iterator[OffsetChange]:
    before, after = _offset_s(tz, after_s), _offset_s(tz, until_s)
    if before == after:
        return
    if until_s - after_s == 1:
        yield OffsetChange(until_s * SECOND_US, before, after)
        return
    middle_s = (after_s + until_s) // 2
    yield from _halved(tz, after_s, middle_s)
    yield from _halved(tz, middle_s, until_s)


def _offset_s(tz: ZoneInfo, at_s: int) -> int:
    # `utcoffset()` uses the local time, and zoneinfo is wrong there if a rule changes at the turn of the year.
    utc = _EPOCH + timedelta(seconds=at_s)
    shown = utc.astimezone(tz)
    return (shown.replace(tzinfo=UTC) - utc) // _SECOND


def _year_start_s(year: int) -> int:
    return (date(year, 1, 1).toordinal() - _EPOCH_ORDINAL) * DAY_S


def _year_of(at_s: int) -> int:
    return date.fromordinal(at_s // DAY_S + _EPOCH_ORDINAL).year
