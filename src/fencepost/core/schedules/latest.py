"""The latest due time of a cron expression: for work that somebody else's scheduler starts.

It is the engine's own cron, so the two changes of the clock mean the same here as in a schedule: due times rise
strictly, also in the hour that comes twice, and none is left out for whoever asks often enough.
"""

from __future__ import annotations

from fencepost.core.schedules.cron import cron
from fencepost.core.tick import spelled_us
from fencepost.errors import InvalidSchedule, InvalidTick


def last_due(expression: str, now_us: int, tz: str = "UTC") -> int:
    """Return the latest time at or before `now_us` at which the cron `expression` was due in the zone `tz`."""
    try:
        due_us = cron(expression, tz=tz).due_before(now_us + 1)
    except InvalidSchedule as error:
        raise InvalidTick(f"tick auto:{expression}: {error}") from None
    if due_us is None:
        raise InvalidTick(f"cron {expression!r} was never due until {spelled_us(now_us)}")
    return due_us
