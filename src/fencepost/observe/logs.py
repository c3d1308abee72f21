"""Writes events as structured log records, and provides two log formats.

Each event becomes one record of the logger ``fencepost.leases`` or, for nodes and runs, ``fencepost.engine``. The
message is a line of ``key=value`` pairs; ``record.fencepost`` has the same fields for structured formatters. The
traceback of an event follows the line in every format, as for any other record.

`JsonFormatter` writes one JSON object per line, and `TextFormatter` one readable line. Both add the run to every record
that was logged inside a run, by any logger. Both include the fields of ``extra=``, and mask the secrets that they
recognize (`fencepost.core.secrets`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime

from fencepost.core.events import Event, What
from fencepost.core.secrets import MASK, is_secret, scrub
from fencepost.core.tick import spelled_us

_OF_EVERY_RUN = (What.RUN_STARTED, What.RUN_SUCCEEDED, What.RUN_RETURNED)
_LEVELS = {
    What.RENEWED: logging.DEBUG,
    **dict.fromkeys(_OF_EVERY_RUN, logging.DEBUG),  # there may be thousands per second; see `show_every_run`
    What.LOST: logging.WARNING,
    What.RENEWAL_UNANSWERED: logging.WARNING,
    What.RELEASE_UNANSWERED: logging.WARNING,
    What.REVOKED: logging.WARNING,
    What.TOKEN_RESET: logging.WARNING,
    What.STORE_WARNING: logging.WARNING,
    What.OBSERVER_FAILED: logging.ERROR,
    What.NODE_LOST: logging.ERROR,
    What.NODE_FAILED: logging.CRITICAL,
    What.NODE_DIED: logging.WARNING,
    What.RUN_FAILED: logging.WARNING,
    What.RUN_DEAD: logging.ERROR,
    What.RUN_LOST: logging.WARNING,
    What.REFUSED_WRITE: logging.WARNING,
    What.RUN_REFUSED: logging.WARNING,
    What.RUN_SUSPENDED: logging.WARNING,
    What.RUN_ABANDONED: logging.WARNING,
    What.SLA_MISSED: logging.WARNING,
    What.JOB_WITHOUT_NODE: logging.WARNING,
    What.JOB_OUTLASTS_GRACE: logging.WARNING,
    What.RUNNER_WARNING: logging.WARNING,
    What.LEDGER_TROUBLE: logging.WARNING,
    What.CLOCK_LEAPT: logging.CRITICAL,
    What.LEDGER_HELD: logging.CRITICAL,
    What.LEDGER_UNSHARED: logging.ERROR,
    What.LEDGER_ADVANCED: logging.CRITICAL,
    What.PROCESS_PAUSED: logging.WARNING,
}
_FIRST = ("job", "run_id", "attempt", "lock", "holder", "token")
_FIELDS = (*_FIRST, *(field.name for field in fields(Event) if field.name not in ("what", "trace", *_FIRST)))
_NAMES = {"run_id": "run", "node": "node_id"}  # in log records, `node` is the name of a node
_OF_LEASES = frozenset(list(What)[: list(What).index(What.NODE_JOINED)])
_leases = logging.getLogger("fencepost.leases")
_engine = logging.getLogger("fencepost.engine")


class EventLog:
    """An observer that writes events to the log; `node` returns the name of the node that emits them."""

    def __init__(self, node: Callable[[], str] | None = None) -> None:
        self._node = node

    def __call__(self, event: Event) -> None:
        """Write `event` to the log."""
        level = _LEVELS.get(event.what, logging.INFO)
        is_of_lease = event.what in _OF_LEASES and not event.node and not event.job
        logger = _leases if is_of_lease else _engine
        if logger.isEnabledFor(level):
            known = fields_of(event)
            if self._node is not None:
                known["node"] = self._node()
            _write(logger, level, event, known)

    def wants(self, what: What) -> bool:
        """Whether an event of a run would be logged. Not used for other events."""
        return _engine.isEnabledFor(_LEVELS.get(what, logging.INFO))


log_event = EventLog()


def _write(logger: logging.Logger, level: int, event: Event, known: Mapping[str, object]) -> None:
    extra = {"fencepost": {"event": str(event.what), **known}}
    record = logger.makeRecord(logger.name, level, "", 0, "%s %s", (event.what, _pairs(known)), None, extra=extra)
    record.exc_text = event.trace  # every formatter writes it after the message
    logger.handle(record)


def show_every_run(is_wanted: bool = True) -> None:
    """Log the start and the success of every run at level INFO instead of DEBUG."""
    _LEVELS.update(dict.fromkeys(_OF_EVERY_RUN, logging.INFO if is_wanted else logging.DEBUG))


def fields_of(event: Event) -> dict[str, object]:
    """Return the fields that are set, with readable instants and durations."""
    known: dict[str, object] = {}
    for name in _FIELDS:
        value = getattr(event, name)
        if value is None or value == "-":  # "-" means no holder
            continue
        if name == "tick_us":
            known["tick"] = spelled_us(value)
        elif name == "reason":
            known[name] = scrub(value)
        else:
            known[_NAMES.get(name, name)] = round(value, 6) if isinstance(value, float) else value
    return known


# -- records of any logger -----------------------------------------------------------------------------------------

Fields = Mapping[str, object]
_OF_EVERY_RECORD = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "fencepost"))
_OF_EVERY_LINE = ("at", "level", "logger", "event", "message", "trace")
_finders: list[Callable[[], Fields | None]] = []


def found_by(find: Callable[[], Fields | None]) -> None:
    """Register `find`, which returns the run that the calling code is part of. For the engine."""
    _finders[:] = [find]


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        known = _known(record)
        entry: dict[str, object] = {"at": _at(record), "level": record.levelname.lower(), "logger": record.name}
        entry |= known
        if "event" not in entry:  # an application's record; the fields of an event contain everything
            entry["message"] = record.getMessage()
        entry |= _extra(record, known)
        if trace := _trace(self, record):
            entry["trace"] = trace
        return json.dumps(_without_secrets(entry), ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """``2026-01-01T00:00:00.000Z warning: settle run 12: the bank is slow attempt=1 token=… node=…``."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        known = _known(record)
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        about, rest = _spoken_of(record, known)
        text = f"{_at(record)} {level}{about}{record.getMessage()}"
        if more := _pairs({**rest, **_extra(record, known)}):
            text += f" {more}"
        trace = _trace(self, record)
        return scrub(f"{text}\n{trace}" if trace else text)


_MAY_BE_NUMBERS = ("token", "pass", "sig")  # the token of a fence, the number of a pass, a signal


def _without_secrets(entry: dict[str, object]) -> dict[str, object]:
    """Mask secrets in texts, and values with the name of a secret."""
    return {name: _clean(name, value) for name, value in entry.items()}


def _clean(name: str, value: object) -> object:
    if isinstance(value, dict):
        return {key: _clean(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(name, each) for each in value]
    if value is None or isinstance(value, bool):
        return value
    is_number = isinstance(value, int | float)
    if is_secret(name) and not ((is_number or str(value).isdigit()) and name.lower().endswith(_MAY_BE_NUMBERS)):
        return MASK
    return value if is_number else scrub(str(value))


def _known(record: logging.LogRecord) -> Fields:
    """Return the fields of the event or the run that a record belongs to."""
    known = getattr(record, "fencepost", None)
    if isinstance(known, Mapping):
        return known
    return next((fields for find in _finders if (fields := find()) is not None), {})


def _spoken_of(record: logging.LogRecord, known: Fields) -> tuple[str, Fields]:
    """Return a prefix that names the run or the library, and the remaining fields. Events need neither."""
    if "event" in known:
        return "", {}
    if {"job", "run"} <= known.keys():
        rest = {name: value for name, value in known.items() if name not in ("job", "run")}
        return f"{known['job']} run {known['run']}: ", rest
    return "" if record.name.partition(".")[0] == "fencepost" else f"{record.name}: ", {}


def _extra(record: logging.LogRecord, known: Fields) -> dict[str, object]:
    """Return the fields of ``extra=``. A field with one of our names is renamed to ``extra_…``."""
    kept: dict[str, object] = {}
    for name, value in vars(record).items():
        if name in _OF_EVERY_RECORD or (name in known and known[name] == value):
            continue
        kept[f"extra_{name}" if name in known or name in _OF_EVERY_LINE else name] = value
    return kept


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    trace = record.exc_text or (formatter.formatException(record.exc_info) if record.exc_info else "")
    return "\n".join(part for part in (trace, record.stack_info) if part)


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _pairs(known: Fields) -> str:
    return " ".join(f"{name}={_quoted(value)}" for name, value in known.items())


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and text and " " not in text else repr(text)
