"""Prints how many orders of statements were tried, per scene and database: see `interleaving`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.interleaving import Tally

PROPERTY = "orders tried"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Note with the test what it tried, wherever it runs."""
    Tally.tried = 0
    try:
        return (yield)
    finally:
        if Tally.tried:
            item.user_properties.append((PROPERTY, Tally.tried))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if "FENCEPOST_INTERLEAVE" not in os.environ:
        return
    tried = {
        report.nodeid: value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == PROPERTY
    }
    terminalreporter.section("orders of statements that were tried")
    for nodeid in sorted(tried):
        terminalreporter.write_line(f"{tried[nodeid]:>7}  {_told(nodeid)}")
    terminalreporter.write_line(f"{sum(tried.values()):>7}  orders in {len(tried)} scenes")


def _told(nodeid: str) -> str:
    """Return where and what: ``fence: run row: writer whose run is reaped: postgres-serializable``."""
    path, *classes, test = nodeid.split("::")
    scene, _, place = test.partition("[")
    folder = path.split("/")[-2]
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", each.removeprefix("Test")).lower() for each in classes]
    return ": ".join((folder, *words, scene.removeprefix("test_").replace("_", " "), place.rstrip("]")))
