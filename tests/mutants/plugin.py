"""A plugin of pytest: plants the mutant that FENCEPOST_MUTANT names, for the whole session."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from tests.mutants.catalogue import MUTANTS

_planted = ExitStack()


def pytest_configure() -> None:
    """Plant it before anything is collected."""
    name = os.environ.get("FENCEPOST_MUTANT")
    if name:
        _planted.enter_context(MUTANTS[name].planted())


def pytest_unconfigure() -> None:
    """Put everything right again."""
    _planted.close()


def pytest_report_header() -> str | None:
    """Say so: nobody shall believe this run."""
    name = os.environ.get("FENCEPOST_MUTANT")
    return f"planted on purpose: {name}: {MUTANTS[name].wrong}" if name else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tell which test noticed."""
    if report.failed and os.environ.get("FENCEPOST_MUTANT"):
        print(f"\nNOTICED {report.nodeid} {report.when}")
