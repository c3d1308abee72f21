"""Calling commands within this process, which spares a second for each; and an application of which they speak."""

import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from fencepost import App
from fencepost.cli.main import main


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        assert self.returncode == 0, self.stderr
        return json.loads(self.stdout)


def call(*words: str, ledger: str | None = None, env: Mapping[str, str] | None = None) -> Done:
    """Do what ``fencepost`` does with these words; `ledger` as if it stood in FENCEPOST_URL."""
    out, err = io.StringIO(), io.StringIO()
    environment = {**(env or {}), **({"FENCEPOST_URL": ledger} if ledger else {})}
    with patch.dict(os.environ, environment), _logging_kept(), redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(list(words))
        except SystemExit as end:
            code = end.code or 0
    return Done(int(code), out.getvalue(), err.getvalue())


@contextmanager
def _logging_kept() -> Iterator[None]:
    """Commands turn logging their own way; other tests of this process have another."""
    loggers = [logging.getLogger(name) for name in ("fencepost", "fencepost.leases", "fencepost.exec")]
    loggers.append(logging.getLogger())
    before = [(logger, logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook
    try:
        yield
    finally:
        logging.captureWarnings(False)
        sys.excepthook, sys.unraisablehook, threading.excepthook = hooks
        for logger, handlers, propagate, level in before:
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)


def shop(url: str, **settings: Any) -> App:
    """The jobs of `tests.cli.shop`, on another ledger."""
    from tests.cli import shop as module

    app = App(url, ttl="10s", **settings)
    for job in module.app.jobs.values():
        app.jobs.add(job)
    return app
