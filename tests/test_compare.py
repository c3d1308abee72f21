"""Two commits are compared side by side (`bench/compare.py`): a smoke version, and what its verdict rests on."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("compare")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "bench/compare.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_commit_is_compared_with_itself() -> None:
    ended = run("HEAD", "HEAD", "--json", "--rounds", "2", "--seconds", "0.1", "--only", "leases-sqlite")
    assert ended.returncode in (0, 1), ended.stderr[-2000:]  # so short, what it measures says nothing
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["old"] == told["new"]
    result = told["leases-sqlite"]
    assert len(result["ratios"]) == 2
    assert 0 < result["interval"][0] <= result["ratio"] <= result["interval"][1]
    assert bool(told["missed"]) == bool(ended.returncode)
    assert all(each in ended.stderr for each in told["missed"])


def test_a_commit_that_is_not_here_is_named() -> None:
    ended = run("0123456789abcdef0123456789abcdef01234567")
    assert ended.returncode == 2
    assert "there is no commit '0123456789abcdef0123456789abcdef01234567' here" in ended.stderr


def test_a_side_refuses_code_that_is_not_its_own(compare: Any, tmp_path: Path) -> None:
    source = tmp_path / "elsewhere" / "src"  # with nothing in it, so the installed code would be imported
    source.mkdir(parents=True)
    with (tmp_path / "log").open("w+", encoding="utf-8") as log:
        side = compare.Side("old", "leases-sqlite", f"sqlite:///{tmp_path}/a.db", source, log)
        try:
            with pytest.raises(RuntimeError, match=r"this side's code is in .*elsewhere"):
                side.until_ready()
        finally:
            side.close()


@pytest.mark.parametrize(
    ("rounds", "low", "high"), [(1, 1, 1), (5, 1, 5), (6, 1, 6), (9, 2, 8), (11, 2, 10), (12, 3, 10), (21, 6, 16)]
)
def test_the_interval_is_that_of_the_sign_test(compare: Any, rounds: int, low: int, high: int) -> None:
    assert compare.interval([float(each) for each in range(rounds, 0, -1)]) == (low, high)


@pytest.mark.parametrize(
    ("workload", "ratio", "high", "missed"),
    [
        ("fence", 1.0, 1.1, False),
        ("fence", 0.951, 0.97, False),
        ("fence", 0.951, 0.969, True),
        ("fence", 0.949, 1.2, True),
        ("renewals", 1.1, 1.3, False),
        ("renewals", 0.5, 0.6, False),
        ("renewals", 1.11, 1.3, True),
    ],
)
def test_what_is_slower_is_named(compare: Any, workload: str, ratio: float, high: float, missed: bool) -> None:
    told = compare.shortfalls(workload, {"ratio": ratio, "interval": [0.1, high]})
    assert [each.split()[0] for each in told] == [workload] * missed
