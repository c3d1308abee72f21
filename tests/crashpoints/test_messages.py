"""Whoever of a supervisor and its worker is killed, at whatever message: no run is lost, and none succeeds twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crashpoints.child import Exits
from tests.crashpoints.grounds import Ground, ground
from tests.crashpoints.messages import supervisor_killed, worker_killed
from tests.crashpoints.world import publish


@pytest.fixture(scope="module")
def made() -> Iterator[Ground]:
    with ground("sqlite", publish) as ready:
        yield ready


@pytest.fixture(scope="module")
def exits() -> Iterator[Exits]:
    opened = Exits()
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("name", "number", "when"),
    [
        ("two runs", 6, "it has taken a run and not begun it"),
        ("two runs", 7, "it has done a run and not answered"),
        ("a cancelled run", 7, "it was interrupted and has not answered"),
    ],
)
def test_worker_that_is_killed_loses_no_run(made: Ground, name: str, number: int, when: str) -> None:
    played = worker_killed(made, name, number, when)
    assert played.outcome is not None, "it was never killed"
    assert played.violations == []


@pytest.mark.parametrize(("number", "when"), [(6, "it was told how a run ended, and has told nobody")])
def test_supervisor_that_is_killed_takes_its_worker_along_and_loses_no_run(
    made: Ground, exits: Exits, number: int, when: str
) -> None:
    played = supervisor_killed(made, "two runs", number, exits)
    assert played.outcome is not None, "it was never killed"
    assert played.violations == []
