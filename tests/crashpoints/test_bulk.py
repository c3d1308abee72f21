"""A chunk whose COMMIT was not answered has landed, or has not: that is looked up, and each item lands once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crashpoints import world
from tests.crashpoints.child import Exits
from tests.crashpoints.drivers import COMMIT
from tests.crashpoints.grounds import Ground, ground
from tests.crashpoints.paths import PATHS
from tests.crashpoints.playing import Play, played, recorded, worth_cutting
from tests.crashpoints.points import Way

CHUNKS = "bulk"


@pytest.fixture(scope="module")
def made() -> Iterator[Ground]:
    with ground("sqlite", world.publish) as ready:
        yield ready


@pytest.mark.parametrize("way", [Way.ERROR, Way.LOST])
def test_whatever_becomes_of_a_commit_each_item_lands_once(made: Ground, way: Way) -> None:
    path = PATHS[CHUNKS]
    labels = recorded(made, path)
    commits = [number for number in worth_cutting(made, path, labels) if labels[number - 1] == COMMIT]
    assert len(commits) > 5
    broken = [played(made, path, Play(number, way, COMMIT), Exits()).violations for number in commits]
    assert [each for each in broken if each] == []
