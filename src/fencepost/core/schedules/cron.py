"""Cron schedules: local times of a time zone, converted to instants.

`fields` computes the local times of an expression, and `zones` the changes of the local clock. This module combines
them. The due times of a cron schedule are exactly these instants:

- an instant whose local time matches the expression, unless `dst` leaves out this occurrence in a fold;
- the first instant after a gap that contains a matching time, if `dst` says so.

So due times are strictly increasing, whatever the local clock does.

**auto**, the default of `dst`, depends on the expression. If neither the hour nor the minute contains a star or a step
(``30 2 * * *``, ``0 9-17 * * MON-FRI``), the expression consists of *fixed times*, each due once a day; it is treated
as ``first``. All others (``*/5 * * * *``, ``0 * * * *``, ``*/10 2 * * *``) *follow real time*: they are due whenever
the local clock shows such a time, as with ``real``. The seconds field does not matter for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

from fencepost.core.duration import Duration
from fencepost.core.schedules.base import CHECKED_FROM_US, LAST_S, LAST_US, SECOND_US, Dues
from fencepost.core.schedules.calendar import LeaveOut, spelled_items
from fencepost.core.schedules.fields import WallTimes, is_fixed_time, normalized, refuse_vain_steps, wall_times
from fencepost.core.schedules.jitter import jitter_from
from fencepost.core.schedules.zones import DST, Passes, Stretch, stretches_from, stretches_until, zone_key
from fencepost.core.words import DstWord
from fencepost.errors import InvalidSchedule


@dataclass(frozen=True, slots=True)
class Cron(Dues):
    """Due when the local clock shows a time that matches the expression. Create it with `cron`, which validates."""

    expression: str
    tz: str = "UTC"
    dst: DstWord = "auto"
    leave_out: tuple[str, ...] = ()
    jitter_us: int = 0
    _walls: WallTimes = field(init=False, repr=False, compare=False)
    _passes: Passes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_walls", wall_times(self.expression, self.leave_out))
        object.__setattr__(self, "_passes", DST[self.dst_in_force])

    @property
    def dst_in_force(self) -> DstWord:
        """The effective value of `dst`: never *auto*."""
        if self.dst != "auto":
            return self.dst
        return "first" if is_fixed_time(self.expression) else "real"

    def due_after(self, after_us: int) -> int | None:
        """Return the first due time strictly after `after_us`."""
        at_s = max(0, after_us // SECOND_US + 1)
        if at_s > LAST_S:
            return None
        for stretch in stretches_from(self.tz, at_s):
            due_s = self._first_in(stretch, at_s)
            if due_s is not None:
                return due_s * SECOND_US
        return None

    def due_before(self, before_us: int) -> int | None:
        """Return the last due time strictly before `before_us`."""
        at_s = min(LAST_S, -(-before_us // SECOND_US) - 1)
        if at_s < 0:
            return None
        for stretch in stretches_until(self.tz, at_s):
            due_s = self._last_in(stretch, at_s)
            if due_s is not None:
                return due_s * SECOND_US
        return None

    def count(self, after_us: int, until_us: int) -> int:
        """Return the number of due times in (after, until]."""
        from_s, until_s = max(0, after_us // SECOND_US + 1), min(LAST_US, until_us) // SECOND_US + 1
        total = 0
        if from_s >= until_s:
            return total
        for stretch in stretches_from(self.tz, from_s):
            if stretch.start_s >= until_s:
                break
            total += self._count_in(stretch, from_s, until_s)
        return total

    def stands_for_gap(self, stretch: Stretch) -> bool:
        """Whether the first instant of `stretch` is due in place of times in the gap right before it."""
        if not stretch.gap_s or not self._passes.after_gap:
            return False
        wall_s = stretch.start_s + stretch.offset_s
        return self._walls.count(wall_s - stretch.gap_s, wall_s) > 0

    def _first_in(self, stretch: Stretch, at_s: int) -> int | None:
        if at_s <= stretch.start_s and self.stands_for_gap(stretch):
            return stretch.start_s
        from_s, until_s = stretch.span(self._passes)
        wall_s = self._walls.first_from(max(at_s, from_s) + stretch.offset_s)
        if wall_s is None or wall_s - stretch.offset_s >= until_s:
            return None
        return wall_s - stretch.offset_s

    def _last_in(self, stretch: Stretch, at_s: int) -> int | None:
        from_s, until_s = stretch.span(self._passes)
        wall_s = self._walls.last_until(min(at_s, until_s - 1) + stretch.offset_s)
        if wall_s is not None and wall_s - stretch.offset_s >= from_s:
            return wall_s - stretch.offset_s
        return stretch.start_s if self.stands_for_gap(stretch) else None

    def _count_in(self, stretch: Stretch, at_s: int, until_s: int) -> int:
        """Return the number of due times of a stretch in [at, until)."""
        offset_s, (first_s, end_s) = stretch.offset_s, stretch.span(self._passes)
        from_s = max(at_s, first_s)
        regular = self._walls.count(from_s + offset_s, min(until_s, end_s) + offset_s)
        if at_s > stretch.start_s or not self.stands_for_gap(stretch):
            return regular
        # The first instant may also match the expression itself; it counts once.
        return regular + (self._walls.first_from(from_s + offset_s) != stretch.start_s + offset_s)


def cron(
    expression: str,
    *,
    tz: str = "UTC",
    dst: DstWord = "auto",
    leave_out: Sequence[LeaveOut] | LeaveOut = (),
    jitter: Duration = 0,
) -> Cron:
    """Create a schedule from a cron expression: ``cron("*/5 * * * *", tz="Asia/Seoul")``.

    Args:
        expression: five fields (minute hour day-of-month month day-of-week), or six with the second first, or an
            alias such as ``@daily``. Fields may have names (``MON``, ``JAN``), lists, ranges, steps, ``L``, ``LW``,
            ``5L`` and ``FRI#2``. If one of the two day fields begins with a star (also ``*/2``), a day must match
            both fields; otherwise either is enough, as in Debian's cron. Other programs differ: see
            `fencepost.core.schedules.dialects`.
        tz: the time zone, such as ``Europe/Berlin``; UTC by default.
        dst: what happens to times that a clock change skips or repeats:

            ========  ========================  =====================
            word      a time inside the gap     a time inside the fold
            ========  ========================  =====================
            auto      *first* for fixed times (no star, no step in hour and minute), *real* for all others
            first     once, right after it      the first time
            second    once, right after it      the second time
            both      once, right after it      both times
            skip      left out                  the first time
            real      left out                  both times
            ========  ========================  =====================

        leave_out: days on which nothing is due: ``"SAT"``, ``"12-25"``, ``"2026-12-24..2026-12-31"``, `date`.
        jitter: start up to this much later. The delay of each due time is the same on every node.

    Raises:
        InvalidSchedule: if the expression cannot be parsed, or would never be due.
    """
    refuse_vain_steps(normalized(expression))
    return cron_on_record(expression, tz=tz, dst=dst, leave_out=leave_out, jitter=jitter)


def dst_word(given: object) -> DstWord:
    """Return `given` if it is a valid value of `dst`, else raise `InvalidSchedule`."""
    known: tuple[DstWord, ...] = get_args(DstWord)
    for word in known:
        if word == given:
            return word
    raise InvalidSchedule(f"dst {given!r} is not known; there are {', '.join(known)}")


def cron_on_record(
    expression: str, *, tz: str, dst: str, leave_out: Sequence[LeaveOut] | LeaveOut = (), jitter: Duration = 0
) -> Cron:
    """Create a schedule that was stored before, perhaps by an older version that was less strict."""
    word = dst_word(dst)
    schedule = Cron(normalized(expression), zone_key(tz), word, spelled_items(leave_out), jitter_from(jitter))
    if schedule.due_after(CHECKED_FROM_US) is None:
        left_out = f" with {', '.join(schedule.leave_out)} left out" if schedule.leave_out else ""
        raise InvalidSchedule(f"cron {schedule.expression!r} in {schedule.tz}{left_out} would never be due")
    return schedule
