"""What the commands say on standard error: sentences for people, or one JSON object per line."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

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


PREPARE = {"text": f"{__name__}:log_as_text", "json": f"{__name__}:log_as_json"}
"""What worker processes call before they load the application, by the format of logs."""


def log_as_text() -> None:
    """Log in a worker process as its node does."""
    configure_node(log_format="text", is_verbose=False)


def log_as_json() -> None:
    """Log in a worker process as its node does."""
    configure_node(log_format="json", is_verbose=False)


def configure_node(*, log_format: str, is_verbose: bool) -> None:
    """Send what a node tells, and what its jobs log, to standard error, each line with its time.

    With ``app`` as format, what becomes of log records is left to the application.
    """
    if log_format == "app":
        return
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(JsonFormatter() if log_format == "json" else _TimedFormatter())
    root = logging.getLogger("fencepost")
    root.handlers[:] = [to_stderr]
    root.propagate = False
    root.setLevel(logging.INFO)
    logging.getLogger("fencepost.leases").setLevel(logging.INFO if is_verbose else logging.WARNING)
    _logger.setLevel(logging.INFO)


class _TimedFormatter(logging.Formatter):
    """``2026-01-01T00:00:00.000Z warning run lost …``."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        text = f"{at} {level}{_of_run(record)}{record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _of_run(record: logging.LogRecord) -> str:
    """Say which run a job's own words are about; events of ours say it themselves."""
    known = getattr(record, "fencepost", None)
    if not isinstance(known, dict) or not {"job", "run"} <= known.keys():
        return ""
    return f"{known['job']} run {known['run']}: "


def complain(sentence: str) -> None:
    """Say on standard error what a person should know; it begins like all that these commands say there."""
    print(f"fencepost: {sentence}", file=sys.stderr, flush=True)


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
