"""Whatever statement a node is cut at, and however: each tick has one run and one success, and nothing stays behind.

All points on SQLite, each in one of the ways, and some on the servers; `make crashpoints` plays all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.crashpoints.child import Exits
from tests.crashpoints.grounds import KINDS, Ground, ground
from tests.crashpoints.paths import PATHS
from tests.crashpoints.playing import each_nth, in_turn, tallied
from tests.crashpoints.world import publish

SOME = 47


@pytest.fixture(scope="module", params=KINDS)
def made(request: pytest.FixtureRequest) -> Iterator[Ground]:
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    with ground(request.param, publish) as ready:
        yield ready


@pytest.fixture(scope="module")
def exits() -> Iterator[Exits]:
    opened = Exits()
    yield opened
    opened.close()


@pytest.mark.parametrize("name", PATHS)
def test_whoever_is_cut_leaves_nothing_undone_and_nothing_done_twice(made: Ground, exits: Exits, name: str) -> None:
    choose = in_turn if made.kind == "sqlite" else each_nth(SOME, first=len(name) % 5)
    tally = tallied(made, PATHS[name], exits, choose)
    assert tally.plays > 0
    assert tally.unreached == []
    assert tally.violated == []
