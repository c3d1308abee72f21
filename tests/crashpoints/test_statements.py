"""Whatever statement a node is cut at, and however: each tick has one run and one success, and nothing stays behind.

Every third point on SQLite, each in one of the ways, and some on the servers; of bulk work, which has many, some.
`make crashpoints` plays all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.crashpoints.child import Exits
from tests.crashpoints.grounds import Ground, ground
from tests.crashpoints.path import BULK
from tests.crashpoints.paths import PATHS
from tests.crashpoints.playing import Choose, each_nth, in_turn, tallied
from tests.crashpoints.world import publish

ON_SERVERS = ("claim keys", "finish and promote", "reap", "run row", "fence row", "bulk", "bulk, far")
NTH, NTH_OF_BULK, NTH_ON_SQLITE = 59, 14, 3
PLAYED = [("sqlite", name) for name in PATHS] + [
    (kind, name) for kind in ("postgresql", "mysql") for name in ON_SERVERS
]


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest) -> Iterator[Ground]:
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # it tells of connections that we cut
    with ground(request.param, publish) as ready:
        yield ready


@pytest.fixture(scope="module")
def exits() -> Iterator[Exits]:
    opened = Exits()
    yield opened
    opened.close()


def chosen(kind: str, name: str) -> Choose:
    if kind != "sqlite":
        return each_nth(NTH, first=len(name) % 5)
    if PATHS[name].family == BULK:
        return each_nth(NTH_OF_BULK, first=len(name))
    return in_turn(NTH_ON_SQLITE, first=len(name))


@pytest.mark.parametrize(("made", "name"), PLAYED, indirect=["made"])
def test_whoever_is_cut_leaves_nothing_undone_and_nothing_done_twice(made: Ground, exits: Exits, name: str) -> None:
    tally = tallied(made, PATHS[name], exits, chosen(made.kind, name))
    assert tally.plays > 0
    assert tally.unreached == []
    assert tally.violated == []
