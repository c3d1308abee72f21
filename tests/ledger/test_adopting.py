"""Adopting: a process goes on with its runs under another name, on each database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.retry import GiveUpLost, HoldForPerson, Rerun
from fencepost.ledger.adopting import adopt
from fencepost.ledger.claiming import mine
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.reaping import reap
from tests.ledger.scene import Scene, ending


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


def rerun(job: str, crashes: int) -> Rerun | GiveUpLost | HoldForPerson:
    return Rerun()


def test_run_goes_on_under_the_new_name_with_its_token_and_attempt(scene: Scene) -> None:
    run_id = scene.add_one(schedule="s")
    claimed = scene.claim_one(node="former")
    key = (run_id, claimed.token)
    assert adopt(scene.connection, formers=["former"], node="new", runs=[key]) == {key}
    row = scene.run(run_id)
    assert (row["node"], row["token"], row["attempts"], row["state"]) == ("new", claimed.token, 1, "running")
    assert [each.run_id for each in mine(scene.connection, node="new")] == [run_id]
    assert reap(scene.connection, node="former", limit=10, decide=rerun) == []
    assert scene.finish(ending(claimed)).refused == []
    [entry] = scene.journal()
    assert (entry["what"], entry["run_id"], entry["node"]) == ("run resumed", run_id, "new")
    assert (entry["token"], entry["schedule"], entry["job"]) == (claimed.token, "s", "job")
    assert "former" in entry["reason"]


def test_what_a_reaper_took_is_not_adopted_and_not_touched(scene: Scene) -> None:
    run_id = scene.add_one()
    old = scene.claim_one(node="former")
    reap(scene.connection, node="former", limit=10, decide=rerun)
    assert adopt(scene.connection, formers=["former"], node="new", runs=[(run_id, old.token)]) == set()
    assert scene.state(run_id) == "queued"
    again = scene.claim_one(node="other")
    assert adopt(scene.connection, formers=["former"], node="new", runs=[(run_id, old.token)]) == set()
    assert adopt(scene.connection, formers=["former"], node="new", runs=[(run_id, again.token)]) == set()
    row = scene.run(run_id)
    assert (row["node"], row["token"]) == ("other", again.token)
    assert [entry["what"] for entry in scene.journal()] == ["run lost"]


def test_answer_that_was_lost_is_given_again_and_noted_once(scene: Scene) -> None:
    run_id = scene.add_one()
    key = (run_id, scene.claim_one(node="former").token)
    for _ in range(2):
        assert adopt(scene.connection, formers=["former"], node="new", runs=[key]) == {key}
    assert len(scene.journal()) == 1
    assert adopt(scene.connection, formers=["former", "new"], node="third", runs=[key]) == {key}
    assert scene.run(run_id)["node"] == "third"


def test_only_what_was_kept_up_is_adopted(scene: Scene) -> None:
    kept, stopped = scene.add_one(), scene.add_one()
    claims = {each.run_id: each for each in scene.claim(node="former").claims}
    key = (kept, claims[kept].token)
    assert adopt(scene.connection, formers=["former"], node="new", runs=[key]) == {key}
    assert [each.run_id for each in reap(scene.connection, node="former", limit=10, decide=rerun)] == [stopped]


def test_nothing_is_asked_for_nothing(scene: Scene) -> None:
    assert adopt(scene.connection, formers=["former"], node="new", runs=[]) == set()
