"""Ends a run of pytest with the processor time that it took: in total, and the files that took most.

Counted are the processes of pytest, the processes that tests start, and the servers, each for the file that ran
meanwhile: what a shared server does at its start is counted for the first file that asks for it. Time is read when
the file changes, so the figures cost nothing. ``--processor-time-of tests`` reads it after each test instead.

What a process used is lost if it is killed together with the parent that should have collected it, such as the
backends of a PostgreSQL that a test kills. So the figures are a little low.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KEY = "processor time"
_COLLECTION = "(imports and collection)"
_CONTROLLER = "(the process that collects the results)"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("processor time")
    group.addoption("--processor-time", type=int, default=20, metavar="N", help="print the N that took most (20)")
    group.addoption("--processor-time-of", choices=("files", "tests"), default="files", help="what to count by")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Meter(config), "processor-time")


class _Meter:
    """Counts processor time per file or test in this process, and adds up what the processes of xdist send."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_of_tests = config.getoption("--processor-time-of") == "tests"
        self._used: Counter[str] = Counter()
        self._seen_s = 0.0
        self._name = _COLLECTION
        self._is_controller = False  # of the processes of xdist

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[object]:
        self._begin(self._name_of(item))
        try:
            return (yield)
        finally:
            if nextitem is None:
                self._note()

    def pytest_sessionfinish(self) -> None:
        if not self._is_controller:
            self._note()
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_KEY] = dict(self._used)

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_xdist_setupnodes(self) -> None:
        """Count what was compiled before: see `tests.compiling`."""
        self._used[_COLLECTION] += _seconds(resource.getrusage(resource.RUSAGE_CHILDREN))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._is_controller = True
        self._used.update(getattr(node, "workeroutput", {}).get(_KEY, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._is_controller:
            self._used[_CONTROLLER] = _seconds(resource.getrusage(resource.RUSAGE_SELF))
        total_s = sum(self._used.values())
        terminalreporter.section(f"processor time: {total_s:.0f} s; most of it")
        for name, spent_s in self._used.most_common(self._config.getoption("--processor-time")):
            terminalreporter.write_line(f"{spent_s:7.2f}s {name}")

    def _name_of(self, item: pytest.Item) -> str:
        return item.nodeid if self._is_of_tests else item.nodeid.partition("::")[0]

    def _begin(self, name: str) -> None:
        if name != self._name:
            self._note()
            self._name = name

    def _note(self) -> None:
        now_s = used_s()
        self._used[self._name] += max(now_s - self._seen_s, 0.0)
        self._seen_s = max(now_s, self._seen_s)


def used_s() -> float:
    """Return what this process, its ended children and all its living descendants have used until now."""
    own, ended = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return _seconds(own) + _seconds(ended) + _used_by_descendants_s()


def _seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def _used_by_descendants_s() -> float:
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(entry)):
            children.setdefault(int(stat[1]), []).append(int(entry))
            used[int(entry)] = sum(map(int, stat[11:15]))  # with that of its own ended children
    found, ticks = [os.getpid()], 0
    while found:
        below = children.get(found.pop(), [])
        found += below
        ticks += sum(used[pid] for pid in below)
    return ticks / _TICKS_PER_S


def _stat(pid: str) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the state on; none if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []
