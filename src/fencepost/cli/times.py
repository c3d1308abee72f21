"""Instants as people write them on a command line: ``24h`` ago, ``2026-03-29T01:00Z``, or a local time with --tz."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from fencepost.core.duration import is_duration, typed_seconds, whole_us
from fencepost.core.schedules.zones import zone_key
from fencepost.core.tick import microseconds, outside_calendar
from fencepost.errors import ConfigurationError

_HELP = "write it as 2026-03-29T01:00Z, or as 24h for that long ago"


def instant_us(text: str, *, what: str, now_us: int, tz: str | None = None) -> int:
    """Read an instant: a time with its zone, a local time in `tz`, or a duration before `now`.

    A date without a time is its first instant in `tz`. A local time that the clock of `tz` skips, or shows twice, is
    refused because it is not one instant.
    """
    stripped = text.strip()
    if stripped.lower() == "now":
        return now_us
    if is_duration(stripped) and not _is_day(stripped):  # 20260329 is a day
        at_us = now_us - whole_us(typed_seconds(stripped, what=what))
    else:
        at_us = _instant_us(stripped, what=what, tz=tz)
    if wrong := outside_calendar(at_us):
        raise ConfigurationError(f"{what} {stripped!r} {wrong}")
    return at_us


def _instant_us(text: str, *, what: str, tz: str | None) -> int:
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{what} {text!r} is not a valid time; {_HELP}") from None
    if read.tzinfo is not None:
        return microseconds(read)
    if tz is None:
        shown = f"{text}T00:00Z" if _is_day(text) else f"{text}Z"
        raise ConfigurationError(f"{what} {text!r} has no time zone; add one, as in {shown}, or give --tz")
    return _of_zone(read, text, what=what, tz=zone_key(tz))


def _of_zone(read: datetime, text: str, *, what: str, tz: str) -> int:
    zone = ZoneInfo(tz)
    first, second = (read.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return microseconds(first)
    is_gap = (first.utcoffset() or timedelta()) < (second.utcoffset() or timedelta())
    fate = "is left out by" if is_gap else "comes twice on"
    raise ConfigurationError(f"{what} {text!r} {fate} the clocks of {tz}; write it with its offset, as in {text}Z")


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
