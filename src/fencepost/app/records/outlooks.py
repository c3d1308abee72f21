"""Previews of a schedule: its next due times, and its times near clock changes of its zone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fencepost.app.records.record import LedgerRecord, at_or_none
from fencepost.core.tick import instant

if TYPE_CHECKING:
    from fencepost.core.schedule import Schedule
    from fencepost.core.schedules.around import ClockChange, Moment
    from fencepost.core.schedules.preview import Preview
    from fencepost.core.schedules.zones import OffsetChange


@dataclass(frozen=True, slots=True)
class MomentRecord(LedgerRecord):
    """A time that a schedule names. `due_at` is None if it is not due; `local` is ISO 8601 in the schedule's zone.

    `local` has no offset if the clocks never show it. `note` says what is special about it.
    """

    due_at: datetime | None
    local: str
    note: str | None

    @staticmethod
    def of(moment: Preview | Moment) -> MomentRecord:
        """Read a due time, or a time near a change of the clocks."""
        return MomentRecord(at_or_none(moment.due_us), moment.local.isoformat(), moment.note or None)


@dataclass(frozen=True, slots=True)
class ClockChangeRecord(LedgerRecord):
    """A change of the clocks. `kind` is ``gap`` or ``fold``; `around` are the times that the schedule names near it.

    `left_off`: how many more of these times are inside the change.
    """

    at: datetime
    kind: str
    local_before: str
    local_after: str
    offset_before_s: int
    offset_after_s: int
    around: Sequence[MomentRecord]
    left_off: int

    @staticmethod
    def of(each: ClockChange) -> ClockChangeRecord:
        """Read what a schedule does around one change."""
        change = each.change
        return ClockChangeRecord(
            at=instant(change.at_us),
            kind="gap" if change.is_gap else "fold",
            local_before=_wall(change.at_us, change.before_s),
            local_after=_wall(change.at_us, change.after_s),
            offset_before_s=change.before_s,
            offset_after_s=change.after_s,
            around=tuple(map(MomentRecord.of, each.moments)),
            left_off=each.left_off,
        )


@dataclass(frozen=True, slots=True)
class OutlookRecord(LedgerRecord):
    """The `next` due times of a schedule, and `changes` of its zone's clocks: those in `year`, or the next two.

    `schedule` is its id, None if it is in no ledger. `dst` is the rule for changes of the clocks that is in force, None
    where there is none to choose. `disagreements` says where other dialects of cron read the expression differently.
    """

    schedule: str | None
    when: str
    tz: str
    dst: str | None
    disagreements: Sequence[str]
    year: int
    next: Sequence[MomentRecord]
    changes: Sequence[ClockChangeRecord]

    @staticmethod
    def of(
        schedule: Schedule, *, now_us: int, count: int = 5, year: int | None = None, name: str | None = None
    ) -> OutlookRecord:
        """Preview a schedule from `now_us` on, with the clock changes in `year`, by default the next two.

        Without `year`, look for changes until the end of the next year: zones that change their clocks regularly do so
        twice a year.
        """
        from fencepost.core.schedule import Cron, describe, preview  # noqa: PLC0415 - rarely needed
        from fencepost.core.schedules.around import around  # noqa: PLC0415
        from fencepost.core.schedules.dialects import disagreements  # noqa: PLC0415
        from fencepost.core.schedules.zones import changes_of_offset, local  # noqa: PLC0415

        shown = year or local(schedule.tz, now_us).year
        crontab = schedule if isinstance(schedule, Cron) else None
        found = _next_changes(schedule.tz, now_us, shown) if year is None else changes_of_offset(schedule.tz, shown)
        changes = [around(schedule, change) for change in found]
        return OutlookRecord(
            schedule=name,
            when=describe(schedule),
            tz=schedule.tz,
            dst=None if crontab is None else crontab.dst_in_force,
            disagreements=() if crontab is None else tuple(disagreements(crontab.expression)),
            year=shown,
            next=tuple(map(MomentRecord.of, preview(schedule, after_us=now_us, count=count))),
            changes=tuple(map(ClockChangeRecord.of, changes)),
        )


def _next_changes(tz: str, now_us: int, year: int) -> list[OffsetChange]:
    from fencepost.core.schedules.base import LAST_YEAR  # noqa: PLC0415
    from fencepost.core.schedules.zones import changes_of_offset  # noqa: PLC0415

    years = range(year - 1, min(year + 1, LAST_YEAR) + 1)  # years of UTC, and `year` is a local one
    return [change for each in years for change in changes_of_offset(tz, each) if change.at_us > now_us][:2]


def _wall(at_us: int, offset_s: int) -> str:
    return (instant(at_us) + timedelta(seconds=offset_s)).replace(tzinfo=None).isoformat()
