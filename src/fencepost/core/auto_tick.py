"""The tick that a user asks for: a due time, or ``auto:CRON``, the latest one of a cron expression.

``auto:CRON`` is the latest due time by this machine's clock: right for what a scheduler starts at that time, on clocks
that differ by less than the interval.
"""

from __future__ import annotations

from datetime import datetime

from fencepost.core.tick import Tick
from fencepost.errors import ConfigurationError

_AUTO = "auto:"


def tick_of(tick: datetime | str | Tick, *, now_us: int, tz: str | None = None, at_most_once: bool = False) -> Tick:
    """Return the tick that is meant at `now_us`; `tz` is the zone of ``auto:CRON``, by default UTC."""
    if isinstance(tick, str) and tick.startswith(_AUTO):
        from fencepost.core.schedules.latest import last_due  # noqa: PLC0415 - only a cron expression needs zones

        return Tick(last_due(tick.removeprefix(_AUTO), now_us, tz or "UTC"), at_most_once)
    if tz is not None:
        raise ConfigurationError(f"tz {tz!r} is the time zone of a tick auto:CRON, and there is none; leave it out")
    return tick if isinstance(tick, Tick) else Tick.of(tick, at_most_once=at_most_once)
