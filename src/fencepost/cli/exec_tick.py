"""The due time a command runs for: given, or the latest one of a cron expression."""

from __future__ import annotations

from fencepost.cli.exec_options import ExecOptions
from fencepost.core import auto_tick
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick
from fencepost.errors import ConfigurationError


def tick_of(options: ExecOptions, runtime: Runtime) -> Tick | None:
    """Return the tick of the options, if any."""
    if options.tick is not None:
        return auto_tick.tick_of(
            options.tick, now_us=runtime.wall_us(), tz=options.zone, at_most_once=options.at_most_once
        )
    if options.zone is not None:
        raise ConfigurationError("--tz applies only to --tick auto:CRON; leave it out")
    if options.at_most_once:
        raise ConfigurationError("--at-most-once is about a tick: give one with --tick")
    return None
