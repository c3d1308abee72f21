"""Schedules with a fixed interval: ``every("5m")``.

The due times form a grid: `start`, `start + interval`, `start + 2·interval`… Each is computed from the start, so they
do not drift, however late a run was. The default start is 1970-01-01 00:00 UTC, the same on all nodes, so
``every("1h")`` is due on the hour in UTC.

An interval is real time: ``every("1d")`` is every 24 hours, so after a clock change it is at another local time. For
"every day at nine", use `cron`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.core.duration import Duration, seconds, spelled
from fencepost.core.schedules.at import instant_us
from fencepost.core.schedules.base import CHECKED_FROM_US, DAY_S, FIRST_DAY, LAST_DAY, LAST_US, SECOND_US, Dues
from fencepost.core.schedules.calendar import Calendar, LeaveOut, calendar_of, spelled_items
from fencepost.core.schedules.jitter import jitter_from
from fencepost.core.schedules.zones import stretch_at, stretches_from, zone_key
from fencepost.errors import InvalidSchedule

_LEAST_S, _MOST_S = 0.1, 3660 * 86_400.0  # shorter ones would keep the planner busy; longer ones are mistakes


@dataclass(frozen=True, slots=True)
class Every(Dues):
    """Due on a grid of instants, on days that are not left out. Create it with `every`, which validates."""

    interval_us: int
    start_us: int = 0
    tz: str = "UTC"
    leave_out: tuple[str, ...] = ()
    jitter_us: int = 0

    def due_after(self, after_us: int) -> int | None:
        """Return the first due time strictly after `after_us`."""
        due_us = self._grid_after(after_us)
        return self._opened(due_us) if self.leave_out else due_us

    def due_before(self, before_us: int) -> int | None:
        """Return the last due time strictly before `before_us`."""
        due_us = self._grid_before(before_us)
        return self._opened_back(due_us) if self.leave_out else due_us

    def count(self, after_us: int, until_us: int) -> int:
        """Return the number of due times in (after, until]."""
        after_us, until_us = max(after_us, self.start_us - 1), min(until_us, LAST_US)
        if until_us <= after_us:
            return 0
        if not self.leave_out:
            return self._grid_count(after_us, until_us)
        return self._count_open(after_us, until_us)

    def _grid_after(self, after_us: int) -> int | None:
        steps = max(0, (after_us - self.start_us) // self.interval_us + 1)
        due_us = self.start_us + steps * self.interval_us
        return due_us if due_us <= LAST_US else None

    def _grid_before(self, before_us: int) -> int | None:
        steps = (min(before_us, LAST_US + 1) - self.start_us - 1) // self.interval_us
        return self.start_us + steps * self.interval_us if steps >= 0 else None

    def _grid_count(self, after_us: int, until_us: int) -> int:
        """Return the number of grid points in (after, until]. Neither may be earlier than the start minus 1 µs."""
        return (until_us - self.start_us) // self.interval_us - (after_us - self.start_us) // self.interval_us

    def _opened(self, due_us: int | None) -> int | None:
        """Return the first grid point from `due_us` on whose local day is not left out."""
        calendar = calendar_of(self.leave_out)
        while due_us is not None:
            stretch = stretch_at(self.tz, due_us // SECOND_US)
            day = _day(due_us, stretch.offset_s)
            opens = calendar.next_open(day)
            if opens == day or opens > LAST_DAY:
                return due_us if opens == day else None
            opens_s = min(opens * DAY_S - stretch.offset_s, stretch.end_s)
            due_us = self._grid_after(opens_s * SECOND_US - 1)
        return None

    def _opened_back(self, due_us: int | None) -> int | None:
        """Return the last grid point up to `due_us` whose local day is not left out."""
        calendar = calendar_of(self.leave_out)
        while due_us is not None:
            stretch = stretch_at(self.tz, due_us // SECOND_US)
            day = _day(due_us, stretch.offset_s)
            opened = calendar.last_open(day)
            if opened == day or opened < FIRST_DAY:
                return due_us if opened == day else None
            closes_s = max((opened + 1) * DAY_S - stretch.offset_s, stretch.start_s)
            due_us = self._grid_before(closes_s * SECOND_US)
        return None

    def _count_open(self, after_us: int, until_us: int) -> int:
        calendar, total = calendar_of(self.leave_out), 0
        for stretch in stretches_from(self.tz, after_us // SECOND_US):
            if stretch.start_s * SECOND_US > until_us:
                break
            from_us = max(after_us, stretch.start_s * SECOND_US - 1)
            to_us = min(until_us, stretch.end_s * SECOND_US - 1)
            total += self._count_days(calendar, from_us, to_us, offset_s=stretch.offset_s)
        return total

    def _count_days(self, calendar: Calendar, after_us: int, until_us: int, *, offset_s: int) -> int:
        """Count the due times in (after, until] day by day. The offset must be constant."""
        total, day = 0, calendar.next_open(_day(after_us + 1, offset_s))
        while (day_us := (day * DAY_S - offset_s) * SECOND_US) <= until_us:
            end_us = day_us + DAY_S * SECOND_US
            total += self._grid_count(max(after_us, day_us - 1), min(until_us, end_us - 1))
            day = calendar.next_open(day + 1)
        return total


def every(
    interval: Duration,
    *,
    start: datetime | str | None = None,
    tz: str = "UTC",
    leave_out: Sequence[LeaveOut] | LeaveOut = (),
    jitter: Duration = 0,
) -> Every:
    """Create a schedule with a fixed interval: ``every("5m")``.

    Args:
        interval: from 100 ms to ten years.
        start: the first due time. By default the grid begins with 1970, which is the same on every node.
        tz: the time zone of the days in `leave_out`.
        leave_out: days on which nothing is due, as in `cron`.
        jitter: start up to this much later; at most the interval.

    Raises:
        InvalidSchedule: if an argument is invalid, or the schedule would never be due.
    """
    start_us = 0 if start is None else instant_us(start, what="start")
    days = spelled_items(leave_out)
    schedule = Every(_interval_us(interval), start_us, zone_key(tz), days, jitter_from(jitter))
    if schedule.jitter_us > schedule.interval_us:
        raise InvalidSchedule(f"jitter {jitter!r} is longer than the interval {interval!r}: starts would change order")
    if schedule.due_after(max(CHECKED_FROM_US, start_us) - 1) is None:
        raise InvalidSchedule(f"every {interval!r} would never be due: all its days are left out")
    return schedule


def _interval_us(interval: Duration) -> int:
    interval_s = seconds(interval, what="interval")
    if not _LEAST_S <= interval_s <= _MOST_S:
        raise InvalidSchedule(
            f"interval {spelled(interval_s)} must be between {spelled(_LEAST_S)} and {spelled(_MOST_S)}"
        )
    return round(interval_s * SECOND_US)


def _day(at_us: int, offset_s: int) -> int:
    return (at_us // SECOND_US + offset_s) // DAY_S
