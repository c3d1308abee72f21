"""Due times as lock stores see them: whole microseconds since 1970, in UTC.

A tick at or below the last done one of its lock is refused, which makes lock and de-duplication one
atomic step for people who bring their own scheduler. When a tick counts as done is a choice:

- *at least once* (default): when the work ended well. A crash in the middle leaves it to be done again.
- *at most once*: when the lock is taken. A crash in the middle leaves it undone for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

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
    """A due time, and whether taking the lock is enough to call it done."""

    at_us: int
    at_most_once: bool = False

    @staticmethod
    def of(due: datetime | str, *, at_most_once: bool = False) -> Tick:
        """Make a tick from an instant; a local time without its zone is refused, for it is two instants a year."""
        at = _parsed(due) if isinstance(due, str) else due
        if not isinstance(at, datetime):
            raise InvalidTick(f"tick {due!r} is no time; give a datetime or a text such as 2026-01-01T00:00Z")
        if at.tzinfo is None or at.utcoffset() is None:
            raise InvalidTick(f"tick {due} has no time zone; add one, as in 2026-01-01T00:00Z")
        return Tick(microseconds(at), at_most_once)

    def __str__(self) -> str:
        return spelled_us(self.at_us)


def microseconds(at: datetime) -> int:
    """Count the whole microseconds from 1970 to `at`."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def instant(at_us: int) -> datetime:
    """Turn microseconds since 1970 into an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=at_us)


def spelled_us(at_us: int) -> str:
    """Spell microseconds since 1970 as an ISO instant ending in Z."""
    return instant(at_us).isoformat().replace("+00:00", "Z")


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidTick(f"tick {text!r} is no time; write it as 2026-01-01T00:00Z") from None
