"""The latest due time of a cron expression, for work that another scheduler starts.

It uses the same cron implementation as the engine, so clock changes are handled in the same way: due times are strictly
increasing, also in the repeated hour, and a caller that asks often enough sees every one.
"""

from __future__ import annotations

from fencepost.core.schedules.cron import cron
from fencepost.core.tick import spelled_us
from fencepost.errors import InvalidSchedule, InvalidTick


def last_due(expression: str, now_us: int, tz: str = "UTC") -> int:
    """Return the latest due time of the cron `expression` at or before `now_us` in the time zone `tz`."""
    try:
        due_us = cron(expression, tz=tz).due_before(now_us + 1)
    except InvalidSchedule as error:
        raise InvalidTick(f"tick auto:{expression}: {error}") from None
    if due_us is None:
        raise InvalidTick(f"cron {expression!r} was never due until {spelled_us(now_us)}")
    return due_us
