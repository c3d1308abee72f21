"""What a schedule will do, drawn: its next due times, and what becomes of it when its zone changes the clocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fencepost.cli.output import at, draw_rows, say
from fencepost.core.duration import spelled
from fencepost.core.schedule import Cron, Preview, Schedule, changes_of_offset, cron, describe, every, preview
from fencepost.core.schedules.around import ClockChange, Moment, around
from fencepost.core.schedules.cron import dst_word
from fencepost.core.schedules.dialects import disagreements
from fencepost.core.schedules.zones import OffsetChange, local
from fencepost.core.tick import instant

_MEANS = {
    "first": "a time left out is due after the gap; one that comes twice is due the first time",
    "second": "a time left out is due after the gap; one that comes twice is due the second time",
    "both": "a time left out is due after the gap; one that comes twice is due both times",
    "skip": "a time left out is not due; one that comes twice is due the first time",
    "real": "a time left out is not due; one that comes twice is due both times",
}


@dataclass(frozen=True, slots=True)
class Outlook:
    """All that is shown of one schedule."""

    name: str | None
    schedule: Schedule
    year: int
    next: list[Preview]
    changes: list[ClockChange]

    @staticmethod
    def of(schedule: Schedule, *, now_us: int, count: int, year: int | None, name: str | None = None) -> Outlook:
        """Look ahead from now, and at the changes of the clock of `year`, by default the present one."""
        seen = year or local(schedule.tz, now_us).year
        changes = [around(schedule, change) for change in changes_of_offset(schedule.tz, seen)]
        return Outlook(name, schedule, seen, preview(schedule, after_us=now_us, count=count), changes)


def ad_hoc(text: str, *, tz: str, dst: str = "auto") -> Schedule | None:
    """Read an expression that was typed in; None if it is the name of something instead."""
    stripped = text.strip()
    if stripped.lower().startswith("every "):
        return every(stripped[len("every ") :], tz=tz)
    return cron(stripped, tz=tz, dst=dst_word(dst)) if " " in stripped or stripped.startswith("@") else None


def outlook_fields(outlook: Outlook) -> dict[str, object]:
    """Return an outlook, as JSON can say it."""
    return {
        "schedule": outlook.name,
        "when": describe(outlook.schedule),
        "tz": outlook.schedule.tz,
        "dst": _dst(outlook.schedule),
        "disagreements": list(_disagreements(outlook.schedule)),
        "year": outlook.year,
        "next": [
            {"due_at": at(each.due_us), "local": each.local.isoformat(), "note": each.note or None}
            for each in outlook.next
        ],
        "changes": [_change_fields(each) for each in outlook.changes],
    }


def draw_outlook(outlook: Outlook) -> None:
    """Draw an outlook for people."""
    schedule, zone = outlook.schedule, outlook.schedule.tz
    print(f"{outlook.name}: {describe(schedule)}" if outlook.name else describe(schedule))
    for sentence in _disagreements(schedule):
        say(f"other dialects disagree about {sentence}")
    if not outlook.next:
        print("\nit is never due again")
    else:
        rows = [(_shown(each.local), at(each.due_us) or "", each.note) for each in outlook.next]
        draw_rows((f"next, in {zone}", "in UTC", ""), rows)
    if not outlook.changes:
        print(f"the clocks of {zone} are not changed in {outlook.year}")
        return
    if dst := _dst(schedule):
        print(f"when the clocks are changed (dst {dst}): {_MEANS[dst]}")
    for each in outlook.changes:
        _draw_change(each, zone)


def _draw_change(each: ClockChange, zone: str) -> None:
    print(f"\n{_change_sentence(each.change, zone)}")
    rows = [_moment_cells(moment) for moment in each.moments]
    draw_rows((f"around it, in {zone}", "in UTC", ""), rows)
    if each.left_off:
        print(f"({each.left_off} more times inside the change are not shown)")


def _change_sentence(change: OffsetChange, zone: str) -> str:
    before, after = _wall(change, change.before_s), _wall(change, change.after_s)
    span = spelled(abs(change.after_s - change.before_s))
    what = f"{span} is left out" if change.is_gap else f"{span} comes twice"
    return f"{before:%A %Y-%m-%d}: the clocks of {zone} go from {_clock(before)} to {_clock(after)}; {what}"


def _wall(change: OffsetChange, offset_s: int) -> datetime:
    return instant(change.at_us) + timedelta(seconds=offset_s)


def _clock(wall: datetime) -> str:
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"


def _moment_cells(moment: Moment) -> tuple[str, str, str]:
    return _shown(moment.local), at(moment.due_us) or "–", moment.note


def _shown(wall: datetime) -> str:
    return f"{wall:%a} {wall.isoformat(sep=' ')}"


def _change_fields(each: ClockChange) -> dict[str, object]:
    change = each.change
    return {
        "at": at(change.at_us),
        "kind": "gap" if change.is_gap else "fold",
        "local_before": _wall(change, change.before_s).replace(tzinfo=None).isoformat(),
        "local_after": _wall(change, change.after_s).replace(tzinfo=None).isoformat(),
        "offset_before_s": change.before_s,
        "offset_after_s": change.after_s,
        "around": [
            {"due_at": at(moment.due_us), "local": moment.local.isoformat(), "note": moment.note or None}
            for moment in each.moments
        ],
        "left_off": each.left_off,
    }


def _disagreements(schedule: Schedule) -> tuple[str, ...]:
    return disagreements(schedule.expression) if isinstance(schedule, Cron) else ()


def _dst(schedule: Schedule) -> str | None:
    return schedule.dst_in_force if isinstance(schedule, Cron) else None
