"""Instants as a page shows them: in UTC, in a schedule's own zone, or in the zone of the one who reads.

The zone is part of the address (``?tz=utc``, ``?tz=own``, ``?tz=Europe/Berlin``), so that a link shows the same to all.
Each time is shown with its offset, because two of them may stand side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from fencepost.core.duration import spelled
from fencepost.core.schedules.zones import zone_key
from fencepost.core.tick import microseconds, spelled_us
from fencepost.errors import FencepostError, InvalidParameters

UTC_ZONE, OWN_ZONE = "utc", "own"


@dataclass(frozen=True, slots=True)
class ZoneChoice:
    """The zone in which a page shows times. `name` is ``utc``, ``own`` or the name of a zone."""

    name: str = UTC_ZONE

    @staticmethod
    def named(name: str) -> ZoneChoice:
        """Return the choice of this name, or refuse it."""
        lowered = name.strip()
        if lowered.lower() in ("", UTC_ZONE, "z"):
            return ZoneChoice()
        if lowered.lower() == OWN_ZONE:
            return ZoneChoice(OWN_ZONE)
        try:
            return ZoneChoice(zone_key(lowered))
        except FencepostError as error:
            raise InvalidParameters(f"the time zone: {error}") from None

    @property
    def query(self) -> str | None:
        """What an address says of it; None for UTC, which need not be said."""
        return None if self.name == UTC_ZONE else self.name

    def spelled(self, at: datetime | None, *, own: str | None = None, exact: bool = False) -> str:
        """Spell an instant for people: ``2026-11-18 03:00:05Z`` or ``2026-11-18 04:00:05+01:00``."""
        if at is None:
            return ""
        zone = (own or "UTC") if self.name == OWN_ZONE else self.name
        try:
            local = at.astimezone(UTC if zone == UTC_ZONE else ZoneInfo(zone))
        except OverflowError:  # a first or last day of all dates, which that zone would put beyond them
            local = at.astimezone(UTC)
        is_utc = local.tzinfo is UTC or zone == "UTC"
        kept = local if exact else local.replace(microsecond=0)
        text = kept.isoformat(sep=" ", timespec="milliseconds" if exact else "seconds")
        return text.replace("+00:00", "Z") if is_utc else text


def in_utc(at: datetime) -> str:
    """Spell an instant exactly, as programs read it."""
    return spelled_us(microseconds(at))


def duration(between: timedelta | float | None) -> str:
    """Spell a duration for people; to the millisecond below ten seconds."""
    if between is None:
        return ""
    seconds_ = between.total_seconds() if isinstance(between, timedelta) else float(between)
    positive = max(seconds_, 0.0)
    return spelled(round(positive, 3) if positive < 10 else round(positive))


def ago(at: datetime | None, now: datetime) -> str:
    """Say how long ago an instant was, or how soon it will be: ``4 min ago``, ``in 2 h``."""
    if at is None:
        return ""
    seconds_ = (now - at).total_seconds()
    if abs(seconds_) < 1:
        return "now"
    words = _coarse(abs(seconds_))
    return f"{words} ago" if seconds_ > 0 else f"in {words}"


def _coarse(seconds_: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds_ >= 2 * size:
            return f"{round(seconds_ / size)} {unit}"
    return f"{round(seconds_)} s"
