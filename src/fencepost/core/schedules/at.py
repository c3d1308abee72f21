"""Schedules that are due at given instants, once each: ``at("2026-12-31T23:00Z")``."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.core.schedules.base import Dues
from fencepost.core.tick import microseconds, outside_calendar
from fencepost.errors import InvalidSchedule

_MOST = 10_000  # instants, all of which are stored in one row of the ledger


@dataclass(frozen=True, slots=True)
class At(Dues):
    """Due at these instants: ascending, without duplicates. Create it with `at`, which validates."""

    times_us: tuple[int, ...]

    @property
    def jitter_us(self) -> int:
        """Always zero: explicit instants are not delayed."""
        return 0

    @property
    def tz(self) -> str:
        """Instants have no time zone; they are shown in UTC."""
        return "UTC"

    def due_after(self, after_us: int) -> int | None:
        """Return the first due time strictly after `after_us`."""
        index = bisect_right(self.times_us, after_us)
        return self.times_us[index] if index < len(self.times_us) else None

    def due_before(self, before_us: int) -> int | None:
        """Return the last due time strictly before `before_us`."""
        index = bisect_left(self.times_us, before_us) - 1
        return self.times_us[index] if index >= 0 else None

    def count(self, after_us: int, until_us: int) -> int:
        """Return the number of due times in (after, until]."""
        return max(0, bisect_right(self.times_us, until_us) - bisect_right(self.times_us, after_us))


def at(when: datetime | str | Sequence[datetime | str]) -> At:
    """Create a schedule of one or several instants: each an aware datetime, or a text such as ``2026-12-31T23:00Z``.

    Raises:
        InvalidSchedule: if one of them is not an instant, such as a local time without a time zone.
    """
    several = [when] if isinstance(when, datetime | str) or not isinstance(when, Iterable) else list(when)
    if not 0 < len(several) <= _MOST:
        raise InvalidSchedule(f"at() takes 1 to {_MOST} instants, not {len(several)}")
    return At(tuple(sorted({instant_us(one, what="at") for one in several})))


def instant_us(when: object, *, what: str) -> int:
    """Return an instant in microseconds since 1970. A local time without a time zone is refused."""
    moment = _parsed(when, what) if isinstance(when, str) else when
    if not isinstance(moment, datetime):
        raise InvalidSchedule(f"{what} {when!r} is not a valid time; use a datetime or a text: 2026-01-01T00:00Z")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidSchedule(f"{what} {when!s} has no time zone; add one, as in 2026-01-01T00:00Z")
    at_us = microseconds(moment)
    if wrong := outside_calendar(at_us):
        raise InvalidSchedule(f"{what} {when!s} {wrong}")
    return at_us


def _parsed(text: str, what: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidSchedule(f"{what} {text!r} is not a valid time; write it as 2026-01-01T00:00Z") from None
