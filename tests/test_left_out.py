"""Tests of a server that is not on this machine are left out, all of them; with FENCEPOST_TEST_ALL none may be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILE = """
import pytest
from testbed.server import Missing
from tests.conftest import pytest_runtest_call, pytest_runtest_setup

@pytest.fixture(scope="module")
def server():
    raise Missing("no such server here")

def test_one(server): ...
def test_two(server): ...
def test_three(request): request.getfixturevalue("server")
"""


@pytest.mark.parametrize(("all_of_them", "said"), [("", "3 skipped"), ("1", "1 failed, 2 errors")])
def test_every_test_of_a_missing_server_is_left_out_or_none_is(tmp_path: Path, all_of_them: str, said: str) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtest_call, pytest_runtest_setup")
    (tmp_path / "test_three.py").write_text(FILE)
    words = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    environment = {**os.environ, "FENCEPOST_TEST_ALL": all_of_them, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert said in ended.stdout, ended.stdout + ended.stderr
