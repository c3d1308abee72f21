"""The tick that a user asks for: a due time, or ``auto:CRON``, the latest due time of a cron expression.

``auto:CRON`` uses this machine's clock. It is right for work that a scheduler starts at that time, on machines whose
clocks differ by less than the interval.
"""

from __future__ import annotations

from datetime import datetime

from fencepost.core.tick import Tick
from fencepost.errors import ConfigurationError

_AUTO = "auto:"


def tick_of(tick: datetime | str | Tick, *, now_us: int, tz: str | None = None, at_most_once: bool = False) -> Tick:
    """Return the tick at `now_us`. `tz` is the time zone of ``auto:CRON``; UTC by default."""
    if isinstance(tick, str) and tick.startswith(_AUTO):
        from fencepost.core.schedules.latest import last_due  # noqa: PLC0415 - only a cron expression needs time zones

        return Tick(last_due(tick.removeprefix(_AUTO), now_us, tz or "UTC"), at_most_once)
    if tz is not None:
        raise ConfigurationError(f"tz {tz!r} applies only to a tick of the form auto:CRON; leave it out")
    return tick if isinstance(tick, Tick) else Tick.of(tick, at_most_once=at_most_once)
