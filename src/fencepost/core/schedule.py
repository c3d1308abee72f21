"""When a job is due: the contract of schedules, their JSON form, and their descriptions.

A `Schedule` is one of three frozen values, `Cron`, `Every` or `At`, created and validated by `cron`, `every` and `at`.
Each is a set of instants, its due times, with these methods:

- `due_after(us)` returns the first due time strictly after an instant; None if there is none
- `due_before(us)` returns the last due time strictly before it
- `dues(after_us, until_us, limit)` returns those in (after, until], and `count(after_us, until_us)` their number

**Promises.** Due times are strictly increasing, whatever the clock of the time zone does. The results depend only on
the schedule and the time zone database. Each call takes microseconds, without a walk through time, and always ends.

**Not promised.** Due times before 1970 or after 2199.

The JSON form is compact and canonical: equal schedules have equal texts. Defaults are omitted. An unknown key is
refused: if this node ignored it, its due times would differ from those of other nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fencepost.core.duration import spelled
from fencepost.core.schedules.at import At, at
from fencepost.core.schedules.base import SECOND_US
from fencepost.core.schedules.cron import Cron, cron, cron_on_record
from fencepost.core.schedules.every import Every, every
from fencepost.core.schedules.jitter import jitter_us
from fencepost.core.schedules.preview import Preview, preview
from fencepost.core.schedules.zones import OffsetChange, changes_of_offset
from fencepost.core.tick import instant, spelled_us
from fencepost.errors import InvalidDuration, InvalidSchedule

__all__ = [
    "At",
    "Cron",
    "Every",
    "OffsetChange",
    "Preview",
    "Schedule",
    "at",
    "changes_of_offset",
    "cron",
    "describe",
    "every",
    "jitter_us",
    "preview",
    "schedule_from_json",
    "schedule_to_json",
    "window_start",
]

Schedule = Cron | Every | At


def window_start(schedule: Schedule, due_us: int) -> int | None:
    """Return the start of a tick's window, which is (previous due time, this one]; None for the first due time."""
    return schedule.due_before(due_us)


def schedule_to_json(schedule: Schedule) -> str:
    """Return the canonical JSON text of a schedule."""
    match schedule:
        case Cron():
            fields: dict[str, Any] = {"cron": schedule.expression, "tz": schedule.tz}
            fields |= {"dst": schedule.dst} if schedule.dst != "auto" else {}
        case Every():
            fields = {"every_us": schedule.interval_us, "start_us": schedule.start_us, "tz": schedule.tz}
        case At():
            return _compact({"at_us": schedule.times_us})
    fields |= {"leave_out": schedule.leave_out} if schedule.leave_out else {}
    fields |= {"jitter_us": schedule.jitter_us} if schedule.jitter_us else {}
    return _compact(fields)


@lru_cache(maxsize=16_384)
def schedule_from_json(text: str) -> Schedule:
    """Read the output of `schedule_to_json`, or raise `InvalidSchedule`. Results are cached."""
    try:
        fields = json.loads(text)
    except ValueError:
        raise InvalidSchedule(f"schedule {text[:100]!r} is not valid JSON") from None
    for kind, read in _READERS.items():
        if isinstance(fields, dict) and kind in fields:
            return _read(text, fields, read)
    raise InvalidSchedule(f"schedule {text[:100]!r} has no known kind; there are {', '.join(_READERS)}")


def describe(schedule: Schedule) -> str:
    """Describe a schedule for people: ``cron */5 * * * * in Asia/Seoul``."""
    match schedule:
        case Cron():
            words = f"cron {schedule.expression} in {schedule.tz}"
            words += f", dst {schedule.dst}" if schedule.dst != "auto" else ""
        case Every():
            words = f"every {spelled(schedule.interval_us / SECOND_US)}"
            words += f" from {spelled_us(schedule.start_us)}" if schedule.start_us else ""
        case At(times_us=(only,)):
            return f"once at {spelled_us(only)}"
        case At(times_us=several):
            return f"at {len(several)} instants from {spelled_us(several[0])} to {spelled_us(several[-1])}"
    words += f", without {', '.join(schedule.leave_out)}" if schedule.leave_out else ""
    words += f" in {schedule.tz}" if schedule.leave_out and isinstance(schedule, Every) else ""
    return words + (f", up to {spelled(schedule.jitter_us / SECOND_US)} later" if schedule.jitter_us else "")


def _compact(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def _read(text: str, fields: dict[str, Any], read: Callable[[dict[str, Any]], Schedule]) -> Schedule:
    try:
        schedule = read(fields)
    except (TypeError, KeyError, OverflowError, InvalidDuration):
        raise InvalidSchedule(f"schedule {text[:100]!r} has a value of an unexpected type") from None
    if fields:
        raise InvalidSchedule(
            f"schedule {text[:100]!r} has {', '.join(map(repr, fields))}, which this version does not know; "
            "update this node before it plans such schedules"
        )
    return schedule


def _cron_from(fields: dict[str, Any]) -> Cron:
    expression, tz, dst = fields.pop("cron"), fields.pop("tz", "UTC"), fields.pop("dst", "auto")
    return cron_on_record(expression, tz=tz, dst=dst, leave_out=fields.pop("leave_out", ()), jitter=_jitter_s(fields))


def _every_from(fields: dict[str, Any]) -> Every:
    return every(
        fields.pop("every_us") / SECOND_US,
        start=instant(fields.pop("start_us", 0)),
        tz=fields.pop("tz", "UTC"),
        leave_out=fields.pop("leave_out", ()),
        jitter=_jitter_s(fields),
    )


def _at_from(fields: dict[str, Any]) -> At:
    return at([instant(time_us) for time_us in fields.pop("at_us")])


def _jitter_s(fields: dict[str, Any]) -> float:
    return float(fields.pop("jitter_us", 0) / SECOND_US)


_READERS: dict[str, Callable[[dict[str, Any]], Schedule]] = {
    "cron": _cron_from,
    "every_us": _every_from,
    "at_us": _at_from,
}
