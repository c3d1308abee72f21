"""Tests that need a server which is still being built come last, and wait for it: ``testbed.provision --meanwhile``.

They wait before their own time begins to count. If the build fails, the server is missing: such tests are left out, or
fail where nothing may be left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from testbed import building

_UNDER_WAY = "FENCEPOST_TEST_BUILDS"
_NEEDED_BY = {
    "leases/contract/test_kubernetes": ("kubernetes",),
    "leases/test_kubernetes_store": ("kubernetes",),
    "fence/test_object_store": ("s3",),
    "tests/test_testbed": ("kubernetes", "s3"),
}
# Decided once, by the first process: all processes of a run must collect in one order.
os.environ.setdefault(_UNDER_WAY, " ".join(name for name in building.PROGRAMS if building.is_under_way(name)))


def pytest_report_header() -> str | None:
    names = os.environ[_UNDER_WAY]
    return f"being built, so that tests which need them come last: {names}" if names else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _is_to_wait(item.nodeid))


def _is_to_wait(nodeid: str) -> bool:
    """Whether a test needs a server that was being built when the run began."""
    return any(name in os.environ[_UNDER_WAY].split() for name in _needed(nodeid))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    if _is_to_wait(item.nodeid):
        for name in _needed(item.nodeid):
            building.wait(name, lambda text: _tell(item.config, text))
    return (yield)


def _needed(nodeid: str) -> tuple[str, ...]:
    return next((names for part, names in _NEEDED_BY.items() if part in nodeid), ())


def _tell(config: pytest.Config, text: str) -> None:
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(text, file=sys.stderr, flush=True)
