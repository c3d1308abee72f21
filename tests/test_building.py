"""Servers that take minutes to build are built in the background, and who needs one waits for it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import building, golang, provision, s3

# Stands for the build: it waits for a file, then makes the program, or fails.
MAKE = """
import os, sys, time
from testbed import building, golang, s3
from testbed.wait import until
def make():
    until((s3.path().parent / "go").exists, 60)
    if os.environ.get("IS_TO_FAIL"):
        raise golang.BuildFailed("no such module")
    s3.path().write_text("a program")
s3.make = make
sys.argv[1:] = ["s3"]
sys.exit(building.main())
"""


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """What builds."""
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for child in made:
        child.kill()
        child.wait()


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, children: list[subprocess.Popen[bytes]]) -> Path:
    """An empty cache, a build of our own, and the file that lets it end."""
    monkeypatch.setenv("FENCEPOST_TEST_CACHE", str(tmp_path))
    start = subprocess.Popen

    def build(_command, **options):
        children.append(start([sys.executable, "-c", MAKE], **options))

    monkeypatch.setattr(building.subprocess, "Popen", build)
    return tmp_path / "go"


def test_who_needs_a_program_waits_until_it_is_built(go: Path) -> None:
    building.begin("s3")
    building.begin("s3")  # it is under way, and not begun again
    assert building.is_under_way("s3")
    assert provision.available()["s3"] is None
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        go.touch()

    building.wait("s3", tell)
    assert s3.program().read_text() == "a program"
    assert len(said) == 1
    assert not building.is_under_way("s3")


def test_a_build_that_fails_leaves_the_program_missing_and_says_why(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IS_TO_FAIL", "1")
    building.begin("s3")
    go.touch()
    building.wait("s3", lambda _: None)
    reason = provision.available()["s3"]
    assert reason is not None
    assert "not built (no such module)" in reason


def test_nobody_waits_for_ever(go: Path) -> None:
    building.begin("s3")
    building.wait("s3", lambda _: None, patience_s=0.0)
    assert building.is_under_way("s3")


def test_what_is_there_is_not_built_again(go: Path) -> None:
    s3.path().write_text("a program")
    building.begin("s3")
    assert not golang.lock_file(s3.path()).exists()


def test_a_build_that_is_killed_is_not_under_way(go: Path, children: list[subprocess.Popen[bytes]]) -> None:
    building.begin("s3")
    children[0].kill()
    children[0].wait()
    assert not building.is_under_way("s3")
    assert provision.available()["s3"] is not None
