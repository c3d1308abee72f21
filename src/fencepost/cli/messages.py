"""What the commands say on standard error: sentences for people, or one JSON object per line."""

from __future__ import annotations

import logging
import sys

from fencepost.core.events import What
from fencepost.observe.logs import JsonFormatter

_LEVELS = {-1: logging.ERROR, 0: logging.INFO, 1: logging.INFO, 2: logging.DEBUG}
_EVENT_LEVELS = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG}
_logger = logging.getLogger("fencepost.exec")


def configure(*, log_format: str, verbosity: int) -> None:
    """Send messages and lease events to standard error; `verbosity` runs from −1 (errors only) to 2 (renewals too)."""
    degree = max(-1, min(verbosity, 2))
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter("fencepost: %(message)s"))
    if degree <= 0:
        to_stderr.addFilter(_is_not_said_anyway)
    root = logging.getLogger("fencepost")
    root.handlers[:] = [to_stderr]
    root.propagate = False
    _logger.setLevel(_LEVELS[degree])
    logging.getLogger("fencepost.leases").setLevel(_EVENT_LEVELS[degree])


def complain(sentence: str) -> None:
    """Say on standard error what a person should know; it begins like all that these commands say there."""
    if any(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger("fencepost").handlers):
        say(logging.ERROR, sentence)
    else:
        print(f"fencepost: {sentence}", file=sys.stderr, flush=True)


def flush() -> None:
    """Wait a moment until all that was said is written."""
    for handler in logging.getLogger("fencepost").handlers:
        handler.flush()


def tell(message: str) -> None:
    """Say what this command does, in a sentence."""
    say(logging.INFO, message)


def say(level: int, message: str, **fields: object) -> None:
    """Say a sentence; `fields` go along for machines."""
    known = {name: value for name, value in fields.items() if value is not None}
    _logger.log(level, "%s", message, extra={"fencepost": {"message": message, **known}})


def _is_not_said_anyway(record: logging.LogRecord) -> bool:
    """Leave out the event of a loss, which the command reports in a sentence of its own."""
    return getattr(record, "fencepost", {}).get("event") != What.LOST
