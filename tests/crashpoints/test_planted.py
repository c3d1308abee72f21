"""Faults that are planted are seen: or nothing here would mean anything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.engine.exchange import Exchange
from fencepost.engine.run import Run
from tests.crashpoints import world
from tests.crashpoints.child import Exits
from tests.crashpoints.grounds import Ground, ground
from tests.crashpoints.paths import PATHS
from tests.crashpoints.playing import Play, played, recorded
from tests.crashpoints.points import Way


@pytest.fixture(scope="module")
def made() -> Iterator[Ground]:
    with ground("sqlite", world.publish) as ready:
        yield ready


def lost_commit(made: Ground, name: str) -> list[str]:
    """Lose the reply to the last COMMIT of a path."""
    labels = recorded(made, PATHS[name])
    number = max(number for number, label in enumerate(labels, 1) if label == "COMMIT")
    return played(made, PATHS[name], Play(number, Way.LOST, "COMMIT"), Exits()).violations


def test_effect_without_a_key_lands_twice(made: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lost_commit(made, "run row") == []
    monkeypatch.setattr(Run, "once", lambda *_: True)
    assert any("2 times" in each for each in lost_commit(made, "run row"))


def test_claim_that_was_not_answered_and_is_forgotten_keeps_its_runs(
    made: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "PATIENCE_S", 1.0)
    monkeypatch.setattr(Exchange, "_reconcile", lambda self, now: setattr(self, "_is_unsure", False))
    assert lost_commit(made, "claim")[0].startswith("stuck")
