"""A restored ledger that is accepted: what becomes of the nodes and runs that the dump has as living and running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NewNode, join, living_nodes
from fencepost.ledger.restoring import Pending, accept
from fencepost.ledger.standing import standing
from tests.ledger.scene import Scene


def node(name: str) -> NewNode:
    return NewNode(name, name, "g", 1, 0, "0.1.0/0004", 1, ("default",), ("job",))


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    """A ledger in which a node runs something."""
    scene = Scene(ledger)
    join(ledger, node("former"))
    scene.add_one()
    assert len(scene.claim(node="former").claims) == 1
    yield scene
    scene.close()


def test_nodes_of_the_dump_are_dead_and_those_that_came_since_live(scene: Scene) -> None:
    ledger = scene.ledger
    identity = ledger.tables.name("identity")
    scene.change(f"UPDATE {identity} SET beat_at = {scene.now_us()}")  # the last that is on record of before
    join(ledger, node("newcomer"))
    accept(ledger, by="ann", reason="a dump")
    assert [each.id for each in living_nodes(ledger)] == ["newcomer"]
    assert ledger.read(lambda cursor: standing(ledger, cursor)).held_why is None


@pytest.mark.parametrize("runs", [Pending.HOLD, Pending.CANCEL])
def test_what_ran_in_the_dump_is_lost_and_no_crash(scene: Scene, runs: Pending) -> None:
    accept(scene.ledger, by="ann", reason="a dump", runs=runs)
    [(state, crashes, attempts)] = scene.rows("SELECT state, crashes, attempts FROM {run} WHERE attempts > 0")
    assert (state, crashes, attempts) == ("waiting" if runs is Pending.HOLD else "cancelled", 0, 1)
