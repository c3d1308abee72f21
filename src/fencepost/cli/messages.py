"""Messages of commands on standard error: sentences for people, or one JSON object per line."""

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
        to_stderr.addFilter(_is_not_a_loss)
    root = logging.getLogger("fencepost")
    root.handlers[:] = [to_stderr]
    root.propagate = False
    _logger.setLevel(_LEVELS[degree])
    logging.getLogger("fencepost.leases").setLevel(_EVENT_LEVELS[degree])


def complain(sentence: str) -> None:
    """Print a message for a person on standard error, with the prefix that all messages have there."""
    if any(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger("fencepost").handlers):
        log(logging.ERROR, sentence)
    else:
        print(f"fencepost: {sentence}", file=sys.stderr, flush=True)


def flush() -> None:
    """Wait until all messages are written."""
    for handler in logging.getLogger("fencepost").handlers:
        handler.flush()


def report(message: str) -> None:
    """Log what this command does, as a sentence."""
    log(logging.INFO, message)


def log(level: int, message: str, **fields: object) -> None:
    """Log a sentence, with `fields` for programs."""
    known = {name: value for name, value in fields.items() if value is not None}
    _logger.log(level, "%s", message, extra={"fencepost": {"message": message, **known}})


def _is_not_a_loss(record: logging.LogRecord) -> bool:
    """Filter out the event of a loss, which the command reports itself."""
    return getattr(record, "fencepost", {}).get("event") != What.LOST
