"""What type checkers make of an application: every mistake in `shop.py` is found, by mypy and by pyright, and no other.

Pyright comes as basedpyright, which brings its own Node.js in a wheel, where the package `pyright` fetches one when it
is started. It runs in the mode *standard*, which is pyright's own default.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.typing.shop import app

ROOT = Path(__file__).parents[2]
SHOP = Path(__file__).parent / "shop.py"
MISTAKES = {
    number: said.group(1).strip()
    for number, line in enumerate(SHOP.read_text().splitlines(), start=1)
    if (said := re.search(r"# wrong: (.+)", line))
}
MYPY = """
[mypy]
strict = True
python_version = 3.11
follow_imports = silent
"""


def test_there_are_mistakes_of_each_kind() -> None:
    assert len(MISTAKES) > 40
    assert {"misspelt parameter", "of another type", "no such word", "misspelt option"} <= set(MISTAKES.values())


def test_what_is_declared_rightly_can_be_declared() -> None:
    assert {"settle", "report", "notify", "fetch", "clean", "SettleOrders", "load", "ChargeOrders"} <= set(app.jobs)


def test_mypy_finds_every_mistake_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(MYPY)
    options = ["--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", os.devnull, "--output", "json"]
    ended = _run([sys.executable, "-m", "mypy", *options, str(SHOP)], MYPYPATH=str(ROOT / "src"))
    told = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    found = [each for each in told if each["severity"] == "error"]
    assert found, ended.stdout + ended.stderr
    _compare({each["line"]: each["message"] for each in found}, {str(ROOT / each["file"]) for each in found})


def test_pyright_finds_every_mistake_and_nothing_else(tmp_path: Path) -> None:
    settings = {"include": [str(SHOP)], "extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({**settings, "pythonVersion": "3.11"}))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    ended = _run([*command, "--project", str(tmp_path / "pyrightconfig.json")])
    found: list[dict[str, Any]] = json.loads(ended.stdout)["generalDiagnostics"]
    found = [each for each in found if each["severity"] == "error"]
    _compare({each["range"]["start"]["line"] + 1: each["message"] for each in found}, {each["file"] for each in found})


def _run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)


def _compare(found: dict[int, str], files: set[str]) -> None:
    assert files == {str(SHOP)}
    assert {line: MISTAKES[line] for line in MISTAKES if line not in found} == {}, "not found"
    assert {line: found[line] for line in found if line not in MISTAKES} == {}, "found, and yet right"
