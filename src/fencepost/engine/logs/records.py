"""Captures the log records of runs, by whichever logger, whatever the application does to its logging.

It listens where records are made (`logging.setLogRecordFactory`), not as a handler: a handler of ours would disable
``logging.basicConfig()`` and the output of unconfigured loggers, and an application that sets up logging would remove
it. So what a logger's own level lets pass is captured, and fields of ``extra=`` are not.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

Keep = Callable[[str], None]
_formatter = logging.Formatter()
_MOST_WAITING = 100  # made while another one is kept; more would be an endless loop
_waiting: ContextVar[list[str] | None] = ContextVar("fencepost_records_waiting", default=None)
"""While a record is being kept: that one and those that were made meanwhile, on the same thread."""


class RecordCapture:
    """Calls `keep` with the text of records. `wants` decides, cheaply, whether a record is captured."""

    def __init__(self, wants: Callable[[logging.LogRecord], bool], keep: Keep) -> None:
        self._wants = wants
        self._keep = keep
        self._before = logging.getLogRecordFactory()
        self._is_on = False

    def start(self) -> None:
        """Listen from now on."""
        self._before = logging.getLogRecordFactory()
        self._is_on = True
        logging.setLogRecordFactory(self._made)

    def stop(self) -> None:
        """Stop listening. If the application has wrapped our factory in its own, ours stays and captures nothing."""
        self._is_on = False
        if logging.getLogRecordFactory() == self._made:
            logging.setLogRecordFactory(self._before)

    def _made(self, *arguments: Any, **more: Any) -> logging.LogRecord:
        record = self._before(*arguments, **more)
        if self._is_on:
            with suppress(Exception):  # as logging does: a record that cannot be formatted must not end a run
                if self._wants(record):
                    self._keep_one_by_one(text_of(record))
        return record

    def _keep_one_by_one(self, text: str) -> None:
        """Keep a record; one that is made in the middle of that follows it.

        `keep` may hold a lock, and Python may collect an object there whose ``__del__`` logs, such as an asyncio task
        with an error that was not retrieved. That record would wait for ever for the lock of its own thread.
        """
        waiting = _waiting.get()
        if waiting is not None:
            if len(waiting) < _MOST_WAITING:
                waiting.append(text)
            return
        waiting = [text]
        before = _waiting.set(waiting)
        try:
            for each in waiting:  # grows meanwhile
                self._keep(each)
        finally:
            _waiting.reset(before)


def text_of(record: logging.LogRecord) -> str:
    """Format a record: when, how serious, which logger, what."""
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = f"{at} {record.levelname.lower()}: {record.name}: {record.getMessage()}"
    if record.exc_info and record.exc_info[0] is not None:
        text += "\n" + _formatter.formatException(record.exc_info)
    return text


def is_not_printed(record: logging.LogRecord) -> bool:
    """Whether no handler writes the record to standard output or error, where it would be captured in any case."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    has_handler = False
    while logger is not None:
        for handler in logger.handlers:
            has_handler = True
            if record.levelno >= handler.level and _is_console(handler):
                return False
        logger = logger.parent if logger.propagate else None
    return has_handler or logging.lastResort is None or record.levelno < logging.lastResort.level


def _is_console(handler: logging.Handler) -> bool:
    if not isinstance(handler, logging.StreamHandler) or isinstance(handler, logging.FileHandler):
        return False
    return handler.stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
