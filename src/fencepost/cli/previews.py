"""Draws previews of schedules for people."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from fencepost.app.records import spelled as exactly
from fencepost.cli.output import draw_rows, say
from fencepost.core.duration import spelled

if TYPE_CHECKING:
    from fencepost.app.records import ClockChangeRecord, MomentRecord, OutlookRecord

_MEANS = {
    "first": "a time left out is due after the gap; one that comes twice is due the first time",
    "second": "a time left out is due after the gap; one that comes twice is due the second time",
    "both": "a time left out is due after the gap; one that comes twice is due both times",
    "skip": "a time left out is not due; one that comes twice is due the first time",
    "real": "a time left out is not due; one that comes twice is due both times",
}


def draw_outlook(outlook: OutlookRecord) -> None:
    """Draw an outlook for people."""
    print(f"{outlook.schedule}: {outlook.when}" if outlook.schedule else outlook.when)
    for sentence in outlook.disagreements:
        say(f"other dialects disagree about {sentence}")
    if not outlook.next:
        print("\nit is never due again")
    else:
        draw_rows((f"next, in {outlook.tz}", "in UTC", ""), [_cells(each, never="") for each in outlook.next])
    if not outlook.changes:
        print(f"the clocks of {outlook.tz} are not changed in {outlook.year}")
        return
    if outlook.dst:
        print(f"when the clocks are changed (dst {outlook.dst}): {_MEANS[outlook.dst]}")
    for each in outlook.changes:
        _draw_change(each, outlook.tz)


def _draw_change(each: ClockChangeRecord, zone: str) -> None:
    print(f"\n{_change_sentence(each, zone)}")
    draw_rows((f"around it, in {zone}", "in UTC", ""), [_cells(moment, never="–") for moment in each.around])
    if each.left_off:
        print(f"({each.left_off} more times inside the change are not shown)")


def _change_sentence(each: ClockChangeRecord, zone: str) -> str:
    before, after = datetime.fromisoformat(each.local_before), datetime.fromisoformat(each.local_after)
    span = spelled(abs(each.offset_after_s - each.offset_before_s))
    what = f"{span} is left out" if each.kind == "gap" else f"{span} comes twice"
    return f"{before:%A %Y-%m-%d}: the clocks of {zone} go from {_clock(before)} to {_clock(after)}; {what}"


def _clock(wall: datetime) -> str:
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"


def _cells(moment: MomentRecord, *, never: str) -> tuple[str, str, str]:
    wall = datetime.fromisoformat(moment.local)
    due = never if moment.due_at is None else exactly(moment.due_at)
    return f"{wall:%a} {wall.isoformat(sep=' ')}", due, moment.note or ""
