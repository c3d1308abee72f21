"""The due time a command runs for: given, or the latest one of a cron expression."""

from __future__ import annotations

from datetime import tzinfo

from fencepost.cli.exec_options import ExecOptions
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick, instant, last_due
from fencepost.errors import ConfigurationError

_AUTO = "auto:"


def tick_of(options: ExecOptions, runtime: Runtime) -> Tick | None:
    """Return the tick asked for, if any.

    ``auto:CRON`` is the latest due time by this machine's clock: right for what cron starts at that time, on clocks
    that differ by less than the interval.
    """
    is_auto = options.tick is not None and options.tick.startswith(_AUTO)
    if options.zone is not None and not is_auto:
        raise ConfigurationError("--tz is the time zone of --tick auto:CRON, and there is none; leave it out")
    if options.tick is None:
        if options.at_most_once:
            raise ConfigurationError("--at-most-once is about a tick: give one with --tick")
        return None
    if not is_auto:
        return Tick.of(options.tick, at_most_once=options.at_most_once)
    now = instant(runtime.wall_us())
    due = last_due(options.tick.removeprefix(_AUTO), now, _zone(options.zone or "UTC"))
    return Tick.of(due, at_most_once=options.at_most_once)


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - only a cron expression needs zones

    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise ConfigurationError(f"there is no time zone {name!r}; write it as UTC or Asia/Seoul") from None
