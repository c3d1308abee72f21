"""Due times as lock stores see them: whole microseconds since 1970, in UTC.

A tick that is not later than the last one done under its lock is refused. So locking and de-duplication are one atomic
step, for applications that have their own scheduler. There are two choices for when a tick counts as done:

- *at least once* (default): when the work has succeeded. After a crash in the middle, it is done again.
- *at most once*: when the lock is taken. After a crash in the middle, it is never done.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fencepost.core.schedules.base import LAST_US
from fencepost.errors import InvalidTick

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CRON_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True)
class Tick:
    """A due time, and whether it counts as done when the lock is taken."""

    at_us: int
    at_most_once: bool = False

    @staticmethod
    def of(due: datetime | str, *, at_most_once: bool = False) -> Tick:
        """Create a tick from an instant. A time without a time zone is refused, because it can be ambiguous."""
        at = _parsed(due) if isinstance(due, str) else due
        if not isinstance(at, datetime):
            raise InvalidTick(f"tick {due!r} is not a valid time; use a datetime or a text: 2026-01-01T00:00Z")
        if at.tzinfo is None or at.utcoffset() is None:
            raise InvalidTick(f"tick {due} has no time zone; add one, as in 2026-01-01T00:00Z")
        return Tick(microseconds(at), at_most_once)

    def __str__(self) -> str:
        return spelled_us(self.at_us)


def microseconds(at: datetime) -> int:
    """Return the whole microseconds from 1970 to `at`."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def instant(at_us: int) -> datetime:
    """Convert microseconds since 1970 to an aware datetime in UTC.

    A number beyond all dates becomes the first or the last of them. Requests are refused long before
    (`outside_calendar`), but a row that has such a number all the same must not break the list that it is in.
    """
    return _EPOCH + timedelta(microseconds=max(_FIRST_DATE_US, min(at_us, _LAST_DATE_US)))


def spelled_us(at_us: int) -> str:
    """Format microseconds since 1970 as an ISO instant ending in Z."""
    return instant(at_us).isoformat().replace("+00:00", "Z")


def outside_calendar(at_us: int) -> str | None:
    """Return what to say of an instant that nothing is recorded or looked for at; None if it is in the calendar."""
    return None if 0 <= at_us <= LAST_US else "is outside the calendar, which runs from 1970 to 2199"


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidTick(f"tick {text!r} is not a valid time; write it as 2026-01-01T00:00Z") from None


# Whole days away from the ends of `datetime`, so that every time zone can show them.
_FIRST_DATE_US = microseconds(datetime(1, 1, 3, tzinfo=UTC))
_LAST_DATE_US = microseconds(datetime(9999, 12, 29, tzinfo=UTC))
