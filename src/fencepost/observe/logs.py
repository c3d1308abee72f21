"""Events as structured log records.

Each becomes one record of the logger ``fencepost.leases`` or, if it is of a node or a run, ``fencepost.engine``: a
readable line of ``key=value`` pairs, and the same fields on the record as ``record.fencepost`` for formatters that want
structure. `JsonFormatter` writes them as one JSON object per line.
"""

from __future__ import annotations

import json
import logging
from dataclasses import fields
from datetime import UTC, datetime

from fencepost.core.events import Event, What
from fencepost.core.tick import spelled_us

_LEVELS = {
    What.RENEWED: logging.DEBUG,
    What.LOST: logging.WARNING,
    What.RENEWAL_UNANSWERED: logging.WARNING,
    What.RELEASE_UNANSWERED: logging.WARNING,
    What.REVOKED: logging.WARNING,
    What.STORE_WARNING: logging.WARNING,
    What.OBSERVER_FAILED: logging.ERROR,
    What.NODE_LOST: logging.ERROR,
    What.NODE_DIED: logging.WARNING,
    What.RUN_FAILED: logging.WARNING,
    What.RUN_DEAD: logging.ERROR,
    What.RUN_LOST: logging.WARNING,
    What.REFUSED_WRITE: logging.WARNING,
    What.RUN_REFUSED: logging.WARNING,
    What.RUN_SUSPENDED: logging.WARNING,
    What.RUN_ABANDONED: logging.WARNING,
    What.SLA_MISSED: logging.WARNING,
    What.RUNNER_WARNING: logging.WARNING,
    What.LEDGER_TROUBLE: logging.WARNING,
    What.CLOCK_LEAPT: logging.CRITICAL,
    What.PROCESS_PAUSED: logging.WARNING,
}
_FIELDS = tuple(field.name for field in fields(Event) if field.name != "what")
_leases = logging.getLogger("fencepost.leases")
_engine = logging.getLogger("fencepost.engine")


def log_event(event: Event) -> None:
    """Write `event` to the log."""
    level = _LEVELS.get(event.what, logging.INFO)
    logger = _engine if event.node or event.job else _leases
    if logger.isEnabledFor(level):
        known = fields_of(event)
        text = " ".join(f"{name}={_quoted(value)}" for name, value in known.items())
        logger.log(level, "%s %s", event.what, text, extra={"fencepost": {"event": str(event.what), **known}})


def fields_of(event: Event) -> dict[str, object]:
    """Return the fields that are set, with instants and durations as people write them."""
    known: dict[str, object] = {}
    for name in _FIELDS:
        value = getattr(event, name)
        if value is None:
            continue
        if name == "tick_us":
            known["tick"] = spelled_us(value)
        else:
            known[name] = round(value, 6) if isinstance(value, float) else value
    return known


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {"at": at.replace("+00:00", "Z"), "level": record.levelname.lower(), "logger": record.name}
        known = getattr(record, "fencepost", None)
        entry |= known if isinstance(known, dict) else {}
        if "event" not in entry:  # what people wrote, not one of ours, whose fields say it all
            entry["message"] = record.getMessage()
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and text and " " not in text else repr(text)
