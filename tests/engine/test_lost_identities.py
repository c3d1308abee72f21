"""Former identities of a process: what it kept up is adopted before the rest is given up, and answered for after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.retry import Rerun
from fencepost.core.runs import Claim, StopReason
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.reaping import reap
from tests.engine.exchange_stand import Stand


@pytest.fixture
def stand(ledger: Ledger) -> Iterator[Stand]:
    made = Stand(ledger)
    yield made
    made.close()


def begun(stand: Stand, count: int = 1) -> list[Claim]:
    stand.add(count=count)
    stand.settle()
    assert len(stand.runner.held) == count
    return sorted(stand.runner.held)


def key(claim: Claim) -> tuple[int, int]:
    return claim.run_id, claim.token


def node_of(stand: Stand, claim: Claim) -> str:
    return stand.scene.run(claim.run_id)["node"]


def test_what_was_kept_up_is_adopted_and_the_rest_given_up(stand: Stand) -> None:
    kept, other = begun(stand, 2)
    stand.lose([kept])
    stand.runner.end(other, "lost")
    stand.be("second")
    stand.step()
    assert stand.runner.resumed == [key(kept)]
    assert stand.runner.stopped == []
    assert node_of(stand, kept) == "second"
    assert stand.scene.state(kept.run_id) == "running"
    assert [each["outcome"] for each in stand.scene.attempts(other.run_id)] == ["lost"]
    stand.runner.end(kept)
    stand.step()
    assert stand.scene.state(kept.run_id) == "succeeded"


def test_nothing_is_given_up_before_somebody_can_adopt(stand: Stand) -> None:
    kept, other = begun(stand, 2)
    stand.lose([kept])
    stand.step()
    assert stand.scene.states([kept.run_id, other.run_id]) == ["running", "running"]
    assert stand.node.lost_identities
    stand.be("second")
    stand.step()
    assert stand.runner.resumed == [key(kept)]
    assert stand.node.lost_identities, "what was stopped has not ended yet"
    stand.runner.end(other, "lost")
    stand.step()
    assert not stand.node.lost_identities


def test_what_a_reaper_took_is_stopped(stand: Stand) -> None:
    [kept] = begun(stand)
    stand.lose([kept])
    reap(stand.scene.connection, node="first", limit=10, decide=lambda job, crashes: Rerun())
    stand.be("second")
    stand.step()
    assert stand.runner.resumed == []
    assert stand.runner.stopped == [(*key(kept), StopReason.LOST)]
    stand.runner.end(kept, "lost")
    stand.settle()
    [again] = stand.runner.held
    assert (again.run_id, again.attempt) == (kept.run_id, 2)
    assert len(stand.scene.attempts(kept.run_id)) == 1


def test_identities_that_are_lost_one_after_the_other_hand_it_on(stand: Stand) -> None:
    [kept] = begun(stand)
    stand.lose([kept])
    stand.be("second")
    stand.lose([kept])
    stand.be("third")
    stand.step()
    assert node_of(stand, kept) == "third"
    stand.lose([kept])
    stand.be("fourth")
    stand.step()
    assert node_of(stand, kept) == "fourth"
    assert stand.runner.stopped == []


def test_what_ended_while_it_was_suspended_is_told_and_not_adopted(stand: Stand) -> None:
    [kept] = begun(stand)
    stand.lose([kept])
    stand.runner.end(kept)
    stand.be("second")
    stand.step()
    assert stand.runner.resumed == []
    assert stand.scene.state(kept.run_id) == "succeeded"
    assert [each["outcome"] for each in stand.scene.attempts(kept.run_id)] == ["succeeded"]


@pytest.mark.parametrize("claims_again", [False, True])
def test_adopted_run_that_is_lost_later_is_answered_for(stand: Stand, claims_again: bool) -> None:
    [kept] = begun(stand)
    stand.lose([kept])
    stand.be("second")
    stand.exchange.settle(stand.runtime.monotonic())
    if claims_again:
        stand.settle()
    stand.runner.end(kept, "lost", reason="its lease at the gate is gone")
    stand.settle()
    assert [each["outcome"] for each in stand.scene.attempts(kept.run_id)] == ["lost"]
    [again] = stand.runner.held
    assert (again.run_id, again.attempt) == (kept.run_id, 2)
