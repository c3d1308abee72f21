"""The exchange, step by step: when it claims, looks and sleeps, and what it makes of what runners say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from fencepost.core.events import What
from fencepost.core.runs import Claim, Requested, StopReason
from fencepost.engine import exchange
from fencepost.errors import LedgerUnavailable
from fencepost.ledger.claiming import Claimed, claim
from fencepost.ledger.ledger import Ledger
from tests.engine.exchange_stand import POLL_S, Stand, stand
from tests.ledger.scene import waits

SOON_US = 1_000_000


@pytest.fixture
def made(ledger: Ledger) -> Iterator[Stand]:
    with stand(ledger) as one:
        yield one


@pytest.fixture
def two(ledger: Ledger) -> Iterator[Stand]:
    with stand(ledger, (("slow",), ("quick",))) as one:
        yield one


# -- when it sleeps


def test_one_runner_without_room_keeps_nobody_awake(two: Stand) -> None:
    two.runner.slots = 2
    two.add("slow", 3)
    assert two.settle() > 0
    assert len(two.runner.held) == 2
    assert len(two.for_a_while(POLL_S)) < 100


def test_runner_that_has_plenty_is_not_put_off_for_ever_by_another(two: Stand) -> None:
    two.runner.slots = 100
    two.add("slow", 80)
    two.settle()
    assert len(two.runner.held) == 80
    two.add("slow", 3)
    two.node.hint()
    assert len(two.for_a_while(1.0)) < 100
    assert len(two.runner.held) == 83


def test_node_that_is_nobody_sleeps_though_something_is_due(made: Stand) -> None:
    made.settle()
    made.be(None)
    made.add(available_at_us=made.scene.now_us() + 1000)
    made.node.hint()
    assert len(made.for_a_while(2 * POLL_S)) < 150


def test_due_time_that_is_known_is_not_forgotten_over_something_else(made: Stand) -> None:
    made.settle()
    made.add(available_at_us=made.scene.now_us() + SOON_US)
    made.node.hint()
    assert made.settle() <= 1.1
    made.add()
    made.node.hint()
    nap_s = made.settle()
    assert len(made.runner.held) == 1
    assert nap_s <= 1.1


def test_time_that_a_run_waits_for_is_known_though_another_node_queues_it(made: Stand) -> None:
    made.settle()
    made.add(available_at_us=made.scene.now_us() + 3 * SOON_US)
    made.node.hint()
    assert made.settle() <= 3.1
    assert made.looks[-1].next_waiting_at_us is not None


def test_next_try_that_is_known_is_not_forgotten_over_a_claim(ledger: Ledger) -> None:
    with stand(ledger, retries=5, backoff="1s..1s") as made:
        made.add(count=2)
        made.settle()
        made.runner.end(made.runner.held[0], "failed")
        made.add()
        made.node.hint()
        assert made.settle() <= 1.3


def test_queued_run_of_a_job_that_nobody_knows_delays_no_other(made: Stand) -> None:
    made.add("removed")
    made.settle()
    made.for_a_while(4 * POLL_S)  # it has looked for it so often that it now does so seldom
    made.add(available_at_us=made.scene.now_us() + SOON_US)
    made.node.hint()
    assert any(0.9 <= at_s <= 1.1 for at_s in made.for_a_while(2.0))


def test_queued_runs_of_a_job_that_nobody_knows_cost_nothing(made: Stand) -> None:
    made.add("removed", 3)
    made.settle()
    before = len(made.looks)
    assert len(made.for_a_while(4 * POLL_S)) <= 12
    assert len(made.looks) - before <= 5


# -- what it sees while it is busy


def test_cancellation_is_seen_while_all_places_are_taken(made: Stand) -> None:
    made.runner.slots = 1
    made.add(count=2)
    made.settle()
    [running] = made.runner.held
    made.scene.change("UPDATE {run} SET cancel_requested_at = 5 WHERE id = %s", running.run_id)
    made.for_a_while(2 * POLL_S)
    assert (running.run_id, running.token, StopReason.CANCELLED) in made.runner.stopped


def test_cancellation_is_seen_while_there_is_always_more_to_claim(made: Stand) -> None:
    made.runner.slots = 2
    made.add()
    made.settle()
    [first] = made.runner.held
    made.add(count=60)
    made.node.hint()
    made.settle()
    made.scene.change("UPDATE {run} SET cancel_requested_at = 5 WHERE id = %s", first.run_id)
    for _ in range(50):
        made.step(0.2)
        for each in [each for each in made.runner.held if each is not first]:
            made.runner.end(each)
    assert (first.run_id, first.token, StopReason.CANCELLED) in made.runner.stopped


def test_cancellation_is_seen_while_it_drains(made: Stand) -> None:
    made.add()
    made.settle()
    [running] = made.runner.held
    made.exchange.drain()
    made.scene.change("UPDATE {run} SET cancel_requested_at = 5 WHERE id = %s", running.run_id)
    for _ in range(20):
        made.step(1.0)
    assert (running.run_id, running.token, StopReason.CANCELLED) in made.runner.stopped


def test_room_that_comes_by_itself_is_noticed_soon(made: Stand) -> None:
    made.runner.slots = 0
    made.add()
    assert made.settle() <= 0.2
    made.runner.slots = 1
    made.settle()
    assert len(made.runner.held) == 1


# -- whose the runs are


def test_run_whose_attempt_lost_its_right_while_the_node_lives_is_run_again(made: Stand) -> None:
    [run_id] = made.add()
    made.settle()
    made.runner.end_all("lost")
    made.settle()
    made.for_a_while(POLL_S)
    [again] = made.runner.held
    assert (again.run_id, again.attempt) == (run_id, 2)
    assert made.scene.run(run_id)["crashes"] == 1
    assert [each["outcome"] for each in made.scene.attempts(run_id)] == ["lost"]


def test_what_a_lost_identity_ran_is_given_up_once(made: Stand) -> None:
    [run_id] = made.add()
    made.settle()
    [old] = made.runner.held
    made.lose()
    made.be("second")
    made.for_a_while(1.0)
    made.runner.end(old, "lost")  # a process takes a moment to die
    made.for_a_while(1.0)
    [again] = made.runner.held
    assert (again.run_id, again.attempt) == (run_id, 2)
    assert made.scene.state(run_id) == "running"
    assert made.scene.run(run_id)["crashes"] == 1
    assert not made.exchange.is_empty
    made.runner.end(again)
    made.settle()
    assert made.exchange.is_empty
    assert made.scene.state(run_id) == "succeeded"


def test_what_a_lost_identity_left_comes_before_what_is_due(made: Stand) -> None:
    [run_id] = made.add()
    made.settle()
    made.lose()
    made.runner.end_all("lost")
    made.be("second")
    made.add()
    made.node.hint()
    made.for_a_while(1.0)
    assert made.scene.run(run_id)["crashes"] == 1
    assert len(made.runner.held) == 2


def test_what_was_claimed_while_the_session_was_being_lost_does_not_begin_under_the_next(made: Stand) -> None:
    [run_id] = made.add()
    submit = made.runner.submit

    def submit_too_late(claims: Sequence[Claim]) -> None:
        made.lose()
        submit(claims)

    made.runner.submit = submit_too_late  # type: ignore[method-assign]
    made.settle()
    [late] = made.runner.held
    assert made.runner.stopped == [(run_id, late.token, StopReason.LOST)]


def test_what_an_identity_claimed_that_is_gone_by_then_never_begins_and_goes_back(
    made: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    [run_id] = made.add()
    submitted: list[Claim] = []
    submit = made.runner.submit
    made.runner.submit = lambda claims: (submitted.extend(claims), submit(claims))  # type: ignore[method-assign]

    def claim_too_late(*args: Any, **wishes: Any) -> Claimed:
        claimed = claim(*args, **wishes)
        made.lose()
        return claimed

    monkeypatch.setattr(exchange, "claim", claim_too_late)
    made.settle()
    assert submitted == []
    monkeypatch.undo()
    made.be("second")
    made.for_a_while(1.0)
    assert [(each.run_id, each.attempt) for each in submitted] == [(run_id, 1)]
    assert made.scene.run(run_id)["crashes"] == 0
    assert made.scene.run(run_id)["node"] == "second"


def test_late_word_of_a_lost_identity_is_not_taken_for_the_next_attempt_s(made: Stand) -> None:
    [run_id] = made.add()
    made.settle()
    [old] = made.runner.held
    made.lose()
    made.be("second")
    made.for_a_while(1.0)
    assert made.scene.state(run_id) == "running", "it has not ended, and would meet the next attempt"
    made.for_a_while(30.0)
    made.runner.end(old, "succeeded")
    made.for_a_while(1.0)
    assert made.scene.state(run_id) == "running"
    assert [each.attempt for each in made.runner.held] == [2]


def _claim_unseen(made: Stand, node: str) -> None:
    """Claim in the node's name, as a request does that arrives when nobody waits for its answer any more."""
    claim(made.scene.connection, node=node, jobs=("work",), queues=("default",), limit=10, decide=waits)


def test_run_in_our_name_that_nobody_here_knows_is_handed_back(made: Stand) -> None:
    made.settle()
    [run_id] = made.add()
    _claim_unseen(made, "first")
    made.for_a_while(120.0)
    assert [each.run_id for each in made.runner.held] == [run_id]
    assert [each.attempt for each in made.runner.held] == [1]


def test_run_in_our_name_is_handed_back_though_an_old_attempt_of_it_is_in_hand(made: Stand) -> None:
    [run_id] = made.add()
    made.settle()
    [old] = made.runner.held
    made.lose()
    made.step()  # which gives up what the first had
    made.be("second")
    _claim_unseen(made, "second")
    made.for_a_while(120.0)
    assert {each.attempt for each in made.runner.held if each.run_id == run_id} == {1, 2}
    made.runner.end(old, "lost")
    made.runner.end_all()
    made.settle()
    assert made.scene.state(run_id) == "succeeded"


# -- endings


def test_worker_that_crashes_leaves_its_run_to_a_person_where_the_policy_says_so(ledger: Ledger) -> None:
    with stand(ledger, on_crash="hold") as made:
        [run_id] = made.add()
        made.settle()
        made.runner.end_all("crashed", error_code="crashed", error="its process was killed")
        made.for_a_while(POLL_S)
        run = made.scene.run(run_id)
    assert (run["state"], run["waits_for"]) == ("waiting", "person")
    assert "on_crash is hold" in run["why"]
    assert made.runner.held == []


def test_worker_that_crashes_once_too_often_is_told_of_as_a_run_that_was_given_up(ledger: Ledger) -> None:
    with stand(ledger, crash_limit=1) as made:
        [run_id] = made.add()
        made.settle()
        made.runner.end_all("crashed", error="killed by signal 9")
        made.settle()
        assert made.scene.state(run_id) == "dead"
        assert [(event.what, event.run_id) for event in made.events] == [(What.RUN_DEAD, run_id)]


def test_endings_that_are_too_large_together_are_told_in_parts(made: Stand) -> None:
    """Each may be kept; the packet that holds all of them is more than some servers take."""
    made.runner.slots = 400
    run_ids = made.scene.add(*[Requested("work", "manual")] * 400)
    made.settle()
    made.runner.end_all(result=json.dumps("x" * 59_000))
    for _ in range(10):
        with suppress(LedgerUnavailable):
            made.step(1.0)
    assert {made.scene.state(run_id) for run_id in run_ids} == {"succeeded"}
    assert made.exchange.is_empty
