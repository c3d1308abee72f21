"""Shows what a schedule does around a clock change of its time zone, so that users can check it.

Every local time of the schedule inside a gap or a fold is listed with its result: due, due at the first instant after
the gap, or left out. Some due times before and after the change are listed as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fencepost.core.schedules.at import At
from fencepost.core.schedules.base import SECOND_US
from fencepost.core.schedules.cron import Cron
from fencepost.core.schedules.every import Every
from fencepost.core.schedules.preview import Preview, preview
from fencepost.core.schedules.zones import OffsetChange, local
from fencepost.core.tick import instant

_BESIDE = 2
"""How many due times are shown before and after a change."""
_WITHIN = 12
"""How many times inside a gap or a fold are listed. A schedule that is due every second has thousands."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One local time near a change. `due_us` is None if it is not due; `local` has no offset if it does not exist."""

    due_us: int | None
    local: datetime
    note: str


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A clock change, and the local times around it. `left_off` counts the times inside it that are not listed."""

    change: OffsetChange
    moments: tuple[Moment, ...]
    left_off: int


def around(schedule: Cron | Every | At, change: OffsetChange) -> ClockChange:
    """Return what happens to the times around one change of offset in the schedule's time zone."""
    span_us = abs(change.after_s - change.before_s) * SECOND_US
    first_us, end_us = (
        (change.at_us, change.at_us) if change.is_gap else (change.at_us - span_us, change.at_us + span_us)
    )
    within = _within(schedule, change, first_us, end_us)
    after_us = max([end_us - 1, *(each.due_us for each in within if each.due_us is not None)])
    before = [_moment(each) for each in _last_before(schedule, first_us)]
    after = [_moment(each) for each in preview(schedule, after_us=after_us, count=_BESIDE)]
    kept = within if len(within) <= _WITHIN else within[: _WITHIN // 2] + within[-_WITHIN // 2 :]
    return ClockChange(change, (*before, *kept, *after), len(within) - len(kept))


def _within(schedule: Cron | Every | At, change: OffsetChange, first_us: int, end_us: int) -> list[Moment]:
    if not isinstance(schedule, Cron):
        found = schedule.dues(first_us - 1, end_us - 1, limit=10_000)
        return [_moment(preview(schedule, after_us=due_us - 1, count=1)[0]) for due_us in found]
    return _in_gap(schedule, change) if change.is_gap else _in_fold(schedule, change)


def _in_gap(schedule: Cron, change: OffsetChange) -> list[Moment]:
    """List the times that the clock skips, then the instant that replaces them, if any."""
    is_made_up = schedule.dst_in_force in ("first", "second", "both")
    note = "never comes; due after the gap" if is_made_up else "never comes; left out"
    skipped = [Moment(None, at, note) for at in _named(schedule, change.before_s, change.after_s, change.at_us)]
    stand_in = preview(schedule, after_us=change.at_us - 1, count=1)
    at_once = [_moment(each) for each in stand_in if each.due_us == change.at_us]
    return skipped + at_once


def _in_fold(schedule: Cron, change: OffsetChange) -> list[Moment]:
    """List both occurrences of the times that come twice."""
    moments = []
    for offset_s, note in ((change.before_s, "first of two"), (change.after_s, "second of two")):
        for at in _named(schedule, change.after_s, change.before_s, change.at_us):
            at_us = _us(at) - offset_s * SECOND_US
            is_due = schedule.due_after(at_us - 1) == at_us
            moments.append(
                Moment(at_us if is_due else None, local(schedule.tz, at_us), note if is_due else f"{note}, left out")
            )
    return moments


def _named(schedule: Cron, low_s: int, high_s: int, at_us: int) -> list[datetime]:
    """Return the local times of the expression in [change + low, change + high), on a clock without changes."""
    steady = Cron(schedule.expression, "UTC", "first", schedule.leave_out)
    first_us, end_us = at_us + low_s * SECOND_US, at_us + high_s * SECOND_US
    return [instant(due_us).replace(tzinfo=None) for due_us in steady.dues(first_us - 1, end_us - 1, limit=100_000)]


def _us(naive: datetime) -> int:
    return round((naive - datetime(1970, 1, 1)).total_seconds()) * SECOND_US


def _last_before(schedule: Cron | Every | At, before_us: int) -> list[Preview]:
    dues: list[int] = []
    due_us = schedule.due_before(before_us)
    while due_us is not None and len(dues) < _BESIDE:
        dues.insert(0, due_us)
        due_us = schedule.due_before(due_us)
    return [preview(schedule, after_us=each - 1, count=1)[0] for each in dues]


def _moment(due: Preview) -> Moment:
    return Moment(due.due_us, due.local, due.note)
