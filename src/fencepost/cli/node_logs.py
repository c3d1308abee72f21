"""Logging of a node: all records go to standard error, in one format.

That is what ``fencepost run --log-format text`` and ``json`` promise, in the node and in its worker processes: of our
events, of the application's and its libraries' own loggers, of Python's warnings, and of uncaught errors.
With ``app``, and inside an application that starts a node itself, logging is left as it is.

The application may set up logging while it is imported. Its levels and its handlers stay, except those of the root
logger that write to standard error or output: ours replaces them. (``logging.basicConfig()`` does nothing, since
there is a handler already.) Output that jobs print, or programs write, is not formatted.
"""

from __future__ import annotations

import logging
import sys
import threading  # noqa: TID251 - only for its hook
from collections.abc import Callable
from typing import Any

from fencepost.observe.logs import JsonFormatter, TextFormatter, show_every_run
from fencepost.threaded.aside import AsideHandler

PREPARE = {"text": f"{__name__}:as_text", "json": f"{__name__}:as_json"}
"""By log format, what worker processes call before they load the application. They call its result afterwards."""

# These loggers write much at INFO, the level of jobs.
_TALKATIVE = ("alembic", "sqlalchemy", "kazoo", "kubernetes", "urllib3", "httpx", "httpcore")


def as_text() -> Callable[[], None]:
    """Log in a worker process as its node does."""
    return _configure(_to_stderr("text"), is_verbose=False)


def as_json() -> Callable[[], None]:
    """Log in a worker process as its node does."""
    return _configure(_to_stderr("json"), is_verbose=False)


def configure_node(*, log_format: str, is_verbose: bool) -> Callable[[], None]:
    """Send all log records to standard error. Return a function to call after the application has been loaded.

    Every run that starts and succeeds is logged only on a terminal, or with ``-v``. The node never
    waits for the reader of its log. A worker does: it may end at any moment, and its node does not wait for it.
    """
    if log_format == "app":
        show_every_run(is_verbose or sys.stderr.isatty())
        return lambda: None
    return _configure(_to_stderr(log_format, AsideHandler(sys.stderr)), is_verbose=is_verbose)


def _to_stderr(log_format: str, handler: logging.Handler | None = None) -> logging.Handler:
    handler = handler or logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    return handler


def _configure(to_stderr: logging.Handler, *, is_verbose: bool) -> Callable[[], None]:
    show_every_run(is_verbose or sys.stderr.isatty())
    logging.root.setLevel(logging.INFO)  # unless the application has set another level
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    sys.unraisablehook = lambda about: _log_uncaught(about.exc_value, about.err_msg or "an exception was ignored")
    threading.excepthook = lambda about: _log_uncaught(about.exc_value, f"thread {_name(about.thread)} ended")

    def speak() -> None:
        _let_all_write_to(to_stderr, is_verbose=is_verbose)

    speak()
    return speak


def _let_all_write_to(handler: logging.Handler, *, is_verbose: bool) -> None:
    """Have all loggers write there; ours also if the application has disabled existing loggers."""
    logging.root.handlers[:] = [*(each for each in logging.root.handlers if not _is_console(each)), handler]
    ours = logging.getLogger("fencepost")
    ours.handlers[:] = [handler]
    ours.propagate = False
    ours.setLevel(logging.INFO)
    logging.getLogger("fencepost.leases").setLevel(logging.INFO if is_verbose else logging.WARNING)
    logging.getLogger("fencepost.exec").setLevel(logging.INFO)
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and f"{name}.".startswith("fencepost."):
            logger.disabled = False


def _is_console(handler: logging.Handler) -> bool:
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return isinstance(handler, logging.StreamHandler) and handler.stream in streams


def _uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        _log_uncaught(error, "this process ends")


def _log_uncaught(error: BaseException | None, what: str) -> None:
    if error is not None and not isinstance(error, SystemExit):
        about = (type(error), error, error.__traceback__)
        logging.getLogger("fencepost.process").error(
            "%s: %s was not caught", what, type(error).__name__, exc_info=about
        )


def _name(thread: threading.Thread | None) -> str:
    return "" if thread is None else thread.name
