"""What all tests share: servers that are not there are left out, plainly; and the table of the lease contract."""

import functools
import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import pymysql
import pytest

from testbed.server import Missing

pytest_plugins = [
    "fencepost.testing.table",
    "tests.builds",
    "tests.compiling",
    "tests.interleaving_table",
    "tests.processor_time",
    "tests.servers",
]

for _name in ("HUP", "QUIT"):  # whoever runs us in the background may ignore them, and children would inherit that
    signal.signal(signal.Signals[f"SIG{_name}"], signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):  # tests that look at tables say how wide the terminal is
    os.environ.pop(_name, None)
# How long an example takes is the machine's affair: what is to be quick is measured elsewhere.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("patient")


_make_context = pymysql.connections.Connection._create_ssl_ctx


@functools.cache
def _shared_context() -> Any:
    return _make_context(None, {})


# Tests connect thousands of times, also by drivers and engines of their own; see `fencepost.sql.pymysql_link`.
pymysql.connections.Connection._create_ssl_ctx = lambda self, options: (
    _make_context(self, options) if options else _shared_context()
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Leave what stays to the end, 400,000 objects, out of garbage collection: it was a third of what this takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Leave out every test of a server that is not on this machine, not only the first that asks for its fixture.

    Pytest keeps what a fixture of a module or session raised, and raises it again without asking the hooks of fixtures.
    """
    with _left_out_if_missing():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Do the same for a test that asks for its server while it runs."""
    with _left_out_if_missing():
        return (yield)


@contextmanager
def _left_out_if_missing() -> Iterator[None]:
    try:
        yield
    except Missing as missing:
        if os.environ.get("FENCEPOST_TEST_ALL") == "1":  # nothing may be left out
            raise
        pytest.skip(f"left out: {missing}")


# The files that take longest begin first, so that no worker is left with one of them while the others are done.
_LONGEST = (
    "fence/test_interleavings",
    "cli/test_running",
    "engine/test_suspension",
    "contract/test_kubernetes",
    "core/test_schedule_zones",
    "cluster/",
    "bulk_chaos/test_smoke",
    "chaos_upgrade/test_smoke",
    "test_programs",
    "cli/test_exec",
    "fence/test_transactions",
    "engine/test_process_runner",
    "ledger/test_interleavings",
    "contract/test_zookeeper",
    "contract/test_etcd",
    "ledger/test_plans",
    "test_busy_and_idle",
    "engine/test_node",
    "engine/test_chaos",
    "stories/",
    "cli/test_guardian",
    "test_suspended_runners",
    "contract/",
    "app/test_operations",
    "app/test_lifecycle",
    "bulk/test_bench_smoke",
    "test_sql_interleavings",
    "test_testbed",
    "cli/",
    "app/test_schedules",
    "app/test_renaming",
    "fence/test_idempotency",
    "bulk/test_landing",
    "engine/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first; within a file the order stays."""
    items.sort(key=lambda item: _place(item.nodeid.partition("::")[0]))


@functools.cache
def _place(file: str) -> int:
    return next((n for n, part in enumerate(_LONGEST) if part in file), len(_LONGEST))
