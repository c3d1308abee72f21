"""The benchmark of bulk work runs: a smoke version of what `make bench` does at length."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_bench_bulk_prints_ratios_as_its_last_line_and_names_what_it_missed() -> None:
    few = ["--rows", "4000", "--chunk", "1000", "--rounds", "1", "--only", "copy"]
    ended = subprocess.run(
        [sys.executable, "bench/bulk.py", "--json", *few], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode in (0, 1), ended.stderr[-2000:]  # so few rows say nothing of its speed
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["ratio_copy"] > 0
    assert bool(told["missed"]) == bool(ended.returncode)
    assert not ended.returncode or ended.stderr.splitlines()[-1].startswith("short of the target: copy at ")
