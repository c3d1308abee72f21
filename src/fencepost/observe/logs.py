"""Events as structured log records, and two formats of log records.

Each event becomes one record of the logger ``fencepost.leases`` or, if it is of a node or a run, ``fencepost.engine``:
a readable line of ``key=value`` pairs, and the same fields on the record as ``record.fencepost`` for formatters that
want structure. A traceback that belongs to it stands below the line in every format, as that of any record does.

`JsonFormatter` writes one JSON object per line, `TextFormatter` a line for people. Both say of every record that was
made inside a run, by whichever logger, of which run it is; both keep what was passed as ``extra=``, and mask secrets
where they recognize them (`fencepost.core.secrets`).
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
    **dict.fromkeys(_OF_EVERY_RUN, logging.DEBUG),  # there may be thousands a second; see `show_every_run`
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
_NAMES = {"run_id": "run", "node": "node_id"}  # `node` is a name, here and in what jobs log
_OF_LEASES = frozenset(list(What)[: list(What).index(What.NODE_JOINED)])
_leases = logging.getLogger("fencepost.leases")
_engine = logging.getLogger("fencepost.engine")


class EventLog:
    """The observer that writes events to the log; `node` returns the name of the node that has seen them."""

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
        """Whether an event of a run would be written; of others this is not asked."""
        return _engine.isEnabledFor(_LEVELS.get(what, logging.INFO))


log_event = EventLog()


def _write(logger: logging.Logger, level: int, event: Event, known: Mapping[str, object]) -> None:
    extra = {"fencepost": {"event": str(event.what), **known}}
    record = logger.makeRecord(logger.name, level, "", 0, "%s %s", (event.what, _pairs(known)), None, extra=extra)
    record.exc_text = event.trace  # every formatter writes it below the message
    logger.handle(record)


def show_every_run(is_wanted: bool = True) -> None:
    """Log the start and the good end of every run as information, which is otherwise for debugging alone."""
    _LEVELS.update(dict.fromkeys(_OF_EVERY_RUN, logging.INFO if is_wanted else logging.DEBUG))


def fields_of(event: Event) -> dict[str, object]:
    """Return the fields that are set, with instants and durations as people write them."""
    known: dict[str, object] = {}
    for name in _FIELDS:
        value = getattr(event, name)
        if value is None or value == "-":  # nobody
            continue
        if name == "tick_us":
            known["tick"] = spelled_us(value)
        elif name == "reason":
            known[name] = scrub(value)
        else:
            known[_NAMES.get(name, name)] = round(value, 6) if isinstance(value, float) else value
    return known


# -- records of whichever logger -----------------------------------------------------------------------------------

Fields = Mapping[str, object]
_OF_EVERY_RECORD = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "fencepost"))
_OF_EVERY_LINE = ("at", "level", "logger", "event", "message", "trace")
_finders: list[Callable[[], Fields | None]] = []


def found_by(find: Callable[[], Fields | None]) -> None:
    """Let `find` say of which run the calling code is part. For the engine, which knows runs."""
    _finders[:] = [find]


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        known = _known(record)
        entry: dict[str, object] = {"at": _at(record), "level": record.levelname.lower(), "logger": record.name}
        entry |= known
        if "event" not in entry:  # what people wrote, not one of ours, whose fields say it all
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
    """Mask secrets in texts, and what has the name of one."""
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
    """Return what is known of the event or the run that a record is about."""
    known = getattr(record, "fencepost", None)
    if isinstance(known, Mapping):
        return known
    return next((fields for find in _finders if (fields := find()) is not None), {})


def _spoken_of(record: logging.LogRecord, known: Fields) -> tuple[str, Fields]:
    """Say what the words of a job, or of some library, are about, and what else is known; events say it themselves."""
    if "event" in known:
        return "", {}
    if {"job", "run"} <= known.keys():
        rest = {name: value for name, value in known.items() if name not in ("job", "run")}
        return f"{known['job']} run {known['run']}: ", rest
    return "" if record.name.partition(".")[0] == "fencepost" else f"{record.name}: ", {}


def _extra(record: logging.LogRecord, known: Fields) -> dict[str, object]:
    """Return what was passed as ``extra=``; what has one of our names is called ``extra_…``."""
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
