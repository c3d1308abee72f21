"""A pytest plugin that prints a table of stores × contract cases at the end.

Load it with ``pytest_plugins = ["fencepost.testing.table"]``.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

pytest.register_assert_rewrite(
    "fencepost.testing.lease_contract", "fencepost.testing.runner_contract", "fencepost.testing.runner_driver"
)

_KEY = "lease contract"
_MARKS = {"passed": "✓", "failed": "✗", "error": "✗", "skipped": "left out"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Store in each contract test the cell of the table that it fills."""
    for item in items:
        store = getattr(getattr(item, "cls", None), "store_name", None)
        if store is not None:
            case = item.name.removeprefix("test_").replace("_", " ")
            item.user_properties.append((_KEY, (store, case)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    cells = _cells(terminalreporter.stats)
    if not cells:
        return
    stores = list(dict.fromkeys(store for store, _ in cells))
    cases = list(dict.fromkeys(case for _, case in cells))
    terminalreporter.section("lease contract: stores × cases")
    for line in _lines(cells, stores, cases):
        terminalreporter.write_line(line)
    passed = sum(outcome == "passed" for outcome in cells.values())
    terminalreporter.write_line("")
    terminalreporter.write_line(
        f"{len(stores)} stores × {len(cases)} cases: {passed} of {len(stores) * len(cases)} cells passed"
    )


def _cells(stats: dict[str, list[object]]) -> dict[tuple[str, str], str]:
    cells: dict[tuple[str, str], str] = {}
    for outcome in ("passed", "skipped", "failed", "error"):  # the worst comes last and wins
        for report in stats.get(outcome, []):
            for key, cell in getattr(report, "user_properties", []):
                if key == _KEY and (getattr(report, "when", "") == "call" or outcome != "passed"):
                    cells[cell[0], cell[1]] = outcome
    return dict(sorted(cells.items()))


def _lines(cells: dict[tuple[str, str], str], stores: list[str], cases: Iterable[str]) -> Iterable[str]:
    cases = list(cases)
    width = max(map(len, cases))
    yield " " * width + "".join(f"  {store}" for store in stores)
    for case in cases:
        marks = (_MARKS.get(cells.get((store, case), "-"), "-").center(len(store)) for store in stores)
        yield case.ljust(width) + "".join(f"  {mark}" for mark in marks)
