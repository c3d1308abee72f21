"""Lists the next due times of a schedule, so that users can check it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fencepost.core.schedules.at import At
from fencepost.core.schedules.base import SECOND_US
from fencepost.core.schedules.cron import Cron
from fencepost.core.schedules.every import Every
from fencepost.core.schedules.zones import Stretch, local, stretch_at


@dataclass(frozen=True, slots=True)
class Preview:
    """One due time: the instant, the local time in the schedule's time zone, and a note if it is special."""

    due_us: int
    local: datetime
    note: str
    """``after the gap``, ``first of two``, ``second of two``, or empty."""


def preview(schedule: Cron | Every | At, *, after_us: int, count: int) -> list[Preview]:
    """Return the next `count` due times after an instant; fewer if the schedule ends."""
    found: list[Preview] = []
    due_us = schedule.due_after(after_us)
    while due_us is not None and len(found) < count:
        found.append(Preview(due_us, local(schedule.tz, due_us), _note(schedule, due_us)))
        due_us = schedule.due_after(due_us)
    return found


def _note(schedule: Cron | Every | At, due_us: int) -> str:
    due_s = due_us // SECOND_US
    stretch = stretch_at(schedule.tz, due_s)
    if isinstance(schedule, Cron) and due_s == stretch.start_s and schedule.stands_for_gap(stretch):
        return "after the gap"
    return _fold_note(stretch, due_s)


def _fold_note(stretch: Stretch, due_s: int) -> str:
    if due_s < stretch.new_from_s:
        return "second of two"
    return "first of two" if due_s >= stretch.again_from_s else ""
