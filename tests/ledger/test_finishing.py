"""Finishing: which endings are believed, and what follows from them, on each database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.runs import Claim, Requested
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.promoting import promote_stranded
from tests.ledger.scene import HOUR_US, Scene, ending, failed, handed_back

NASTY = "a\x00b \ud800 ' \" \\ \\u0000 %s {run} \n ☃ 𝄞"
KEPT = "a\ufffdb ? ' \" \\ \\u0000 %s {run} \n ☃ 𝄞"


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


@pytest.fixture
def claimed(scene: Scene) -> Claim:
    scene.add_one()
    return scene.claim_one()


class TestBelievedEndings:
    def test_success_ends_the_run_and_keeps_its_attempt(self, scene: Scene, claimed: Claim) -> None:
        finished = scene.finish(ending(claimed, took_us=17, result='{"rows": 3}'))
        assert finished == (finished.now_us, [], 0, ())
        run = scene.run(claimed.run_id)
        assert (run["state"], run["ended_at"], run["result"]) == ("succeeded", finished.now_us, '{"rows": 3}')
        assert (run["attempts"], run["failures"], run["crashes"]) == (1, 0, 0)
        assert (run["node"], run["token"], run["waits_for"]) == ("node", claimed.token, None)
        assert scene.attempts(claimed.run_id) == [
            {
                "run_id": claimed.run_id,
                "number": 1,
                "node": "node",
                "token": claimed.token,
                "started_at": claimed.claimed_at_us,
                "ended_at": finished.now_us,
                "took_us": 17,
                "outcome": "succeeded",
                "error_code": None,
                "error": None,
                "trace": None,
            }
        ]

    def test_failure_is_kept_word_for_word_where_a_database_can(self, scene: Scene, claimed: Claim) -> None:
        scene.finish(failed(claimed, error_code="ValueError", error=NASTY, trace=NASTY, why=NASTY))
        run, [attempt] = scene.run(claimed.run_id), scene.attempts(claimed.run_id)
        assert (run["state"], run["failures"], run["error_code"]) == ("dead", 1, "ValueError")
        assert run["error"] == run["why"] == attempt["error"] == attempt["trace"] == KEPT
        assert attempt["outcome"] == "failed"

    def test_a_whole_batch_of_all_kinds_is_told_apart(self, scene: Scene) -> None:
        ids = scene.add(*[Requested("job", "manual")] * 6)
        one, two, three, four, five, six = scene.claim().claims
        finished = scene.finish(
            ending(six, result="6"),
            failed(two, error="no"),
            ending(three, "skipped", "cancelled", why="nothing to do"),
            failed(four, "queued", delay_us=500_000),
            handed_back(five),
            ending(one),
        )
        assert finished.refused == []
        assert scene.states(ids) == ["succeeded", "dead", "skipped", "queued", "queued", "succeeded"]
        assert [len(scene.attempts(run_id)) for run_id in ids] == [1, 1, 1, 1, 0, 1]
        assert [scene.run(run_id)["failures"] for run_id in ids] == [0, 1, 0, 1, 0, 0]

    @pytest.mark.parametrize(("delay_us", "expected"), [(0, ("queued", None)), (HOUR_US, ("waiting", "time"))])
    def test_retry_is_queued_or_waits_for_its_time(
        self, scene: Scene, claimed: Claim, delay_us: int, expected: tuple[str, str | None]
    ) -> None:
        finished = scene.finish(failed(claimed, "queued", delay_us=delay_us, error="again"))
        run = scene.run(claimed.run_id)
        assert (run["state"], run["waits_for"]) == expected
        assert (run["available_at"], run["ended_at"]) == (finished.now_us + delay_us, None)
        assert (run["attempts"], run["failures"], run["error"]) == (1, 1, "again")

    def test_run_that_is_held_waits_for_a_person_and_for_nothing_else(self, scene: Scene, claimed: Claim) -> None:
        other = scene.add_one()
        scene.finish(ending(claimed, "waiting", "lost", why="it crashed"), ending(scene.claim_one()))
        run = scene.run(claimed.run_id)
        assert (run["state"], run["waits_for"], run["why"]) == ("waiting", "person", "it crashed")
        assert (run["crashes"], run["ended_at"]) == (1, None)
        assert scene.state(other) == "succeeded"
        assert scene.claim().claims == []

    @pytest.mark.parametrize("key", [None, "k"])
    def test_lost_worker_is_in_the_journal_once(self, scene: Scene, key: str | None) -> None:
        run_id = scene.add_one(exclusive_key=key)
        lost = ending(scene.claim_one(), "queued", "lost", error="killed by signal 9", why="it runs again")
        for _ in range(2):
            assert scene.finish(lost).refused == []
        [entry] = scene.journal()
        assert (entry["what"], entry["run_id"], entry["job"], entry["node"]) == ("run lost", run_id, "job", "node")
        assert (entry["token"], entry["reason"]) == (lost.token, "killed by signal 9; it runs again")
        assert scene.state(run_id) == "queued"

    def test_next_attempt_has_the_next_number_and_a_higher_token(self, scene: Scene, claimed: Claim) -> None:
        scene.finish(failed(claimed, "queued"))
        again = scene.claim_one()
        assert (again.attempt, again.failures) == (2, 1)
        assert again.token > claimed.token
        scene.finish(ending(again))
        assert [each["number"] for each in scene.attempts(claimed.run_id)] == [1, 2]

    def test_handed_back_claim_leaves_no_trace(self, scene: Scene, claimed: Claim) -> None:
        before = scene.run(claimed.run_id)
        scene.finish(handed_back(claimed))
        run = scene.run(claimed.run_id)
        assert (run["state"], run["attempts"], run["node"], run["started_at"]) == ("queued", 0, None, None)
        assert run["token"] == before["token"]
        assert scene.attempts(claimed.run_id) == []
        assert scene.claim_one().attempt == 1

    def test_progress_of_a_failed_attempt_is_not_that_of_the_next(self, scene: Scene, claimed: Claim) -> None:
        scene.change("UPDATE {run} SET progress = 0.5, progress_note = 'half'")
        scene.finish(failed(claimed, "queued"))
        assert scene.run(claimed.run_id)["progress"] is None
        assert scene.run(claimed.run_id)["progress_note"] is None

    @pytest.mark.parametrize("outcome", ["failed", None])
    def test_run_that_is_to_be_cancelled_is_not_tried_again(
        self, scene: Scene, claimed: Claim, outcome: str | None
    ) -> None:
        scene.change("UPDATE {run} SET cancel_requested_at = 5")
        finished = scene.finish(ending(claimed, "queued", outcome, delay_us=HOUR_US))
        run = scene.run(claimed.run_id)
        assert (run["state"], run["waits_for"], run["ended_at"]) == ("cancelled", None, finished.now_us)

    def test_run_that_is_to_be_cancelled_and_succeeds_has_succeeded(self, scene: Scene, claimed: Claim) -> None:
        scene.change("UPDATE {run} SET cancel_requested_at = 5")
        scene.finish(ending(claimed))
        assert scene.state(claimed.run_id) == "succeeded"


def test_nothing_to_end_is_nothing_done(scene: Scene) -> None:
    finished = scene.finish()
    assert abs(finished.now_us - scene.now_us()) < 60_000_000
    assert finished[1:] == ([], 0, ())


class TestRefusedEndings:
    def _is_refused(self, scene: Scene, *late) -> None:
        before = scene.run(late[0].run_id), scene.attempts(late[0].run_id)
        finished = scene.finish(*late)
        assert finished.refused == [each.run_id for each in late]
        assert (scene.run(late[0].run_id), scene.attempts(late[0].run_id)) == before
        [entry] = [each for each in scene.journal() if each["what"] == "run refused"]
        assert (entry["run_id"], entry["token"], entry["job"]) == (late[0].run_id, late[0].token, "job")

    def test_after_somebody_else_took_it_over(self, scene: Scene, claimed: Claim) -> None:
        scene.finish(handed_back(claimed))
        scene.claim_one(node="other")
        self._is_refused(scene, ending(claimed))

    def test_after_it_was_queued_again(self, scene: Scene, claimed: Claim) -> None:
        scene.finish(handed_back(claimed))
        self._is_refused(scene, ending(claimed))

    def test_another_outcome_after_it_ended(self, scene: Scene, claimed: Claim) -> None:
        scene.finish(ending(claimed))
        self._is_refused(scene, failed(claimed))

    def test_with_another_attempts_number(self, scene: Scene, claimed: Claim) -> None:
        self._is_refused(scene, ending(claimed._replace(attempt=2)))

    def test_of_a_run_that_does_not_exist(self, scene: Scene, claimed: Claim) -> None:
        finished = scene.finish(ending(claimed._replace(run_id=claimed.run_id + 5)))
        assert finished.refused == [claimed.run_id + 5]
        assert [each["run_id"] for each in scene.journal()] == [claimed.run_id + 5]

    def test_others_of_the_batch_are_believed(self, scene: Scene) -> None:
        ids = scene.add(*[Requested("job", "manual")] * 3)
        first, second, third = scene.claim().claims
        finished = scene.finish(ending(first), ending(second._replace(token=5)), ending(third))
        assert finished.refused == [second.run_id]
        assert scene.states(ids) == ["succeeded", "running", "succeeded"]

    def test_hand_back_that_comes_late_has_lost_nothing(self, scene: Scene, claimed: Claim) -> None:
        scene.finish(ending(claimed))
        assert scene.finish(handed_back(claimed)).refused == []
        assert scene.state(claimed.run_id) == "succeeded"
        assert scene.journal() == []


class TestRepeatedFinish:
    def test_is_recognized_as_ours(self, scene: Scene) -> None:
        scene.add(*(Requested("job", "manual", exclusive_key=key) for key in (None, "k", None)))
        claims = scene.claim().claims
        endings = [ending(claims[0]), ending(claims[1]), failed(claims[2], "queued")]
        scene.finish(*endings)
        before = [scene.run(each.run_id) for each in claims]
        assert scene.finish(*endings).refused == []
        assert [scene.run(each.run_id) for each in claims] == before
        assert [len(scene.attempts(each.run_id)) for each in claims] == [1, 1, 1]
        assert scene.journal() == []

    def test_also_when_the_next_attempt_runs_already(self, scene: Scene, claimed: Claim) -> None:
        again = failed(claimed, "queued")
        scene.finish(again)
        scene.claim_one()
        assert scene.finish(again).refused == []
        assert scene.state(claimed.run_id) == "running"


class TestKeys:
    def test_ended_run_gives_its_key_up_and_the_next_in_line_is_queued(self, scene: Scene) -> None:
        first, second, third, urgent = scene.add(
            *(Requested("job", "manual", exclusive_key="k", priority=p) for p in (9, 0, 0, 5))
        )
        holder = scene.claim_one()
        assert holder.run_id == first
        assert scene.finish(ending(holder)).promoted == 1
        assert scene.holder("k") == (None, holder.token)
        assert scene.states([first, urgent, second, third]) == ["succeeded", "queued", "waiting", "waiting"]
        run = scene.run(urgent)
        assert (run["waits_for"], run["why"]) == (None, None)
        assert scene.claim_one().run_id == urgent

    @pytest.mark.parametrize(
        "how", [ending, failed, handed_back, lambda each: failed(each, "queued", delay_us=HOUR_US)]
    )
    def test_however_it_ended(self, scene: Scene, how) -> None:
        scene.add(*[Requested("job", "manual", exclusive_key="k")] * 2)
        holder = scene.claim_one()
        assert scene.finish(how(holder)).promoted == 1
        assert scene.holder("k") == (None, holder.token)

    def test_late_ending_does_not_free_the_heirs_key(self, scene: Scene) -> None:
        scene.add_one(exclusive_key="k")
        first = scene.claim_one()
        scene.finish(handed_back(first))
        heir = scene.claim_one(node="other")
        assert heir.run_id == first.run_id
        waiting = scene.add_one(exclusive_key="k")
        scene.claim()
        assert scene.finish(ending(first)).refused == [first.run_id]
        assert scene.holder("k") == (heir.run_id, heir.token)
        assert scene.state(waiting) == "waiting"

    def test_keys_of_a_batch_are_freed_each_for_its_own_line(self, scene: Scene) -> None:
        scene.add(*(Requested("job", "manual", exclusive_key=key) for key in ("a", "b", "c", "a", "b", "a")))
        claims = scene.claim().claims
        assert scene.finish(*(ending(each) for each in claims)).promoted == 2
        assert [each.exclusive_key for each in scene.claim().claims] == ["a", "b"]

    def test_stranded_runs_are_found_and_queued(self, scene: Scene) -> None:
        first, *rest = scene.add(*[Requested("job", "manual", exclusive_key="k")] * 3)
        holder = scene.claim_one()
        assert promote_stranded(scene.connection) == 0
        scene.finish(ending(holder))
        scene.change("UPDATE {run} SET state = 'cancelled' WHERE id = %s", rest[0])  # it was the next in line
        assert promote_stranded(scene.connection) == 1
        assert scene.states([first, *rest]) == ["succeeded", "cancelled", "queued"]

    def test_key_whose_holder_vanished_strands_nobody(self, scene: Scene) -> None:
        scene.add(*[Requested("job", "manual", exclusive_key="k")] * 2)
        holder = scene.claim_one()
        scene.change("DELETE FROM {run} WHERE id = %s", holder.run_id)
        assert promote_stranded(scene.connection) == 1
        assert scene.claim_one().exclusive_key == "k"
