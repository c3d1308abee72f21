"""What every runner must do, as tests.

Derive a class per runner and say how to make one::

    class TestThreads(RunnerContract):
        def make(self, *, slots, timeouts, emit):
            return ThreadRunner(..., slots=slots, timeouts=timeouts, emit=emit)

It has to execute the jobs of `fencepost.testing.runner_jobs`. Every test states one promise, and every one ends with
`close`, after which each claim must have had exactly one outcome. Nothing waits by sleeping: tests wait for what they
expect, with a deadline.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from fencepost.core.events import Event
from fencepost.core.runs import Claim, StopReason
from fencepost.engine.runners.outcome import How
from fencepost.engine.runners.runner import Runner
from fencepost.testing.runner_driver import SOON_S, RunnerDriver
from fencepost.testing.waiting import until

OpenDesk = Callable[..., RunnerDriver]


class RunnerContract:
    """Derive from it; see the module's docstring."""

    def make(self, *, slots: int, timeouts: Mapping[str, float | None], emit: Callable[[Event], None]) -> Runner:
        """Return a runner that executes the jobs of `fencepost.testing.runner_jobs`."""
        raise NotImplementedError

    @pytest.fixture
    def events(self) -> list[Event]:
        """Return all that the runner told."""
        return []

    @pytest.fixture
    def open_desk(self, tmp_path: Path, events: list[Event]) -> Iterator[OpenDesk]:
        """Yield a function that starts a runner; each is closed in the end, and every claim must have an outcome."""
        desks: list[RunnerDriver] = []

        def open_desk(
            *, slots: int = 2, timeouts: Mapping[str, float | None] | None = None, trusted: bool = True
        ) -> RunnerDriver:
            desk = RunnerDriver(self.make(slots=slots, timeouts=timeouts or {}, emit=events.append), tmp_path)
            desks.append(desk)
            desk.start()
            if trusted:
                desk.trust()
                desk.await_room(slots)
            return desk

        yield open_desk
        for desk in desks:
            desk.let_go()
            desk.runner.close(SOON_S)
            desk.collect()
            assert desk.outcomes.keys() == desk.claims.keys(), "every claim has an outcome once the runner is closed"
            assert desk.runner.running() == 0

    # -- executing ---------------------------------------------------------------------------------------------------

    def test_every_claim_comes_back_once(self, open_desk: OpenDesk) -> None:
        desk, left = open_desk(slots=3), 400
        while left:
            desk.await_room()
            number = min(desk.runner.room(), left)
            assert {outcome.how for outcome in desk.gather_quick(number)} == {How.SUCCEEDED}
            left -= number
        assert desk.runner.running() == 0

    def test_outcome_carries_the_result(self, open_desk: OpenDesk) -> None:
        outcome = open_desk().run("double", n=21)
        assert (outcome.how, outcome.result) == (How.SUCCEEDED, "42")

    @pytest.mark.parametrize("job", ["fail", "leave"])
    def test_what_a_job_raises_ends_its_run_and_nothing_else(self, open_desk: OpenDesk, job: str) -> None:
        desk = open_desk(slots=1)
        outcome = desk.run(job)
        assert outcome.how == How.FAILED
        assert outcome.error_code == {"fail": "ValueError", "leave": "SystemExit"}[job]
        assert desk.run("nothing").how == How.SUCCEEDED

    def test_slots_execute_at_the_same_time(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=3)
        waiters = [desk.waiter() for _ in range(3)]
        desk.begin(*waiters)
        desk.let_go()
        assert desk.hows(*waiters) == [How.SUCCEEDED] * 3

    def test_room_is_what_is_free_as_long_as_nothing_is_known_of_runs(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=3)
        assert desk.runner.room() == 3
        desk.begin(desk.waiter(), desk.waiter())
        assert desk.runner.room() == 1
        assert desk.runner.running() == 2

    def test_quick_runs_are_claimed_ahead_and_long_ones_are_not(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=2)
        desk.know_quick_runs(slots=2)
        desk.begin(desk.waiter(), desk.waiter())
        until(lambda: desk.runner.room() == 0, SOON_S, "no room behind runs that take long")

    def test_whoever_collects_is_told_each_time(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=1)
        for _ in range(3):
            before, claim = desk.calls, desk.claim("nothing")
            desk.submit(claim)
            until(lambda before=before: desk.calls > before, SOON_S, "somebody is told")  # type: ignore[misc]
            assert desk.hows(claim) == [How.SUCCEEDED]

    # -- trust -------------------------------------------------------------------------------------------------------

    def test_there_is_no_room_without_trust(self, open_desk: OpenDesk) -> None:
        desk = open_desk(trusted=False)
        assert desk.runner.room() == 0
        desk.trust()
        assert desk.run("nothing").how == How.SUCCEEDED

    def test_trust_is_never_shortened(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        desk.trust(-1.0)
        assert desk.run("nothing").how == How.SUCCEEDED

    def test_lost_trust_ends_everything(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=1)
        desk.know_quick_runs(slots=1)
        claims = [desk.waiter(), desk.claim("nothing"), desk.claim("nothing")]
        desk.submit(*claims)
        desk.await_begun(claims[0])
        desk.runner.lose()
        assert desk.hows(*claims) == [How.LOST, How.RETURNED, How.RETURNED], "nothing is lost with what had not begun"
        assert desk.runner.room() == 0
        desk.let_go()
        desk.trust()
        assert desk.run("nothing").how == How.SUCCEEDED

    def test_what_is_not_fenced_is_stopped_also_when_nobody_knows(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=1)
        waiter = desk.waiter()
        desk.begin(waiter)
        assert desk.runner.suspend() == []
        assert desk.hows(waiter) == [How.LOST]
        assert desk.runner.room() == 0
        desk.runner.resume([(waiter.run_id, waiter.token)])
        desk.let_go()
        desk.trust()
        assert desk.run("nothing").how == How.SUCCEEDED

    # -- stopping ----------------------------------------------------------------------------------------------------

    def test_run_that_outlives_its_timeout_is_stopped(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=1, timeouts={"wait_for": 0.3, "nothing": None})
        waiter = desk.waiter()
        desk.submit(waiter)
        outcome = desk.outcome(waiter)
        assert outcome.how == How.TIMED_OUT
        assert outcome.took_us >= 300_000
        assert "timeout" in (outcome.error or "")
        desk.let_go()
        assert desk.run("nothing").how == How.SUCCEEDED

    def test_stopped_run_is_reported_as_what_it_was_stopped_for(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=3)
        cancelled, lost, other = waiters = [desk.waiter() for _ in range(3)]
        desk.begin(*waiters)
        desk.runner.stop(cancelled.run_id, cancelled.token, StopReason.CANCELLED)
        desk.runner.stop(lost.run_id, lost.token, StopReason.LOST)
        assert desk.hows(cancelled, lost) == [How.CANCELLED, How.LOST]
        assert desk.runner.running() == 1
        desk.let_go()
        assert desk.hows(other) == [How.SUCCEEDED]

    def test_claim_that_is_stopped_before_it_began_never_begins(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=1)
        desk.know_quick_runs(slots=1)
        first, second = desk.waiter(), desk.waiter()
        desk.submit(first, second)
        desk.await_begun(first)
        desk.runner.stop(second.run_id, second.token, StopReason.CANCELLED)
        assert desk.hows(second) == [How.CANCELLED]
        desk.let_go()
        assert desk.hows(first) == [How.SUCCEEDED]
        assert desk.run("nothing").how == How.SUCCEEDED
        assert not Path(json.loads(second.params)["began"]).exists()

    def test_stopping_what_it_does_not_have_changes_nothing(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=1)
        waiter = desk.waiter()
        desk.begin(waiter)
        desk.runner.stop(waiter.run_id, waiter.token - 1, StopReason.CANCELLED)
        desk.runner.stop(waiter.run_id + 1, waiter.token, StopReason.CANCELLED)
        desk.let_go()
        assert desk.hows(waiter) == [How.SUCCEEDED]
        desk.runner.stop(waiter.run_id, waiter.token, StopReason.CANCELLED)
        assert desk.run("nothing").how == How.SUCCEEDED

    # -- handing back ------------------------------------------------------------------------------------------------

    def test_what_has_not_begun_can_be_taken_back(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=1)
        desk.know_quick_runs(slots=1)
        claims = [desk.waiter(), desk.claim("nothing"), desk.claim("nothing")]
        desk.submit(*claims)
        desk.await_begun(claims[0])
        desk.runner.take_back()
        assert desk.hows(*claims[1:]) == [How.RETURNED] * 2
        desk.let_go()
        assert desk.hows(claims[0]) == [How.SUCCEEDED]

    def test_what_waits_too_long_behind_a_long_run_is_handed_back(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=1)
        desk.know_quick_runs(slots=1)
        claims = [desk.waiter(), desk.claim("nothing"), desk.claim("nothing")]
        desk.submit(*claims)
        desk.await_begun(claims[0])
        assert desk.hows(*claims[1:]) == [How.RETURNED] * 2
        assert desk.runner.running() == 1

    # -- closing -----------------------------------------------------------------------------------------------------

    def test_close_hands_back_and_waits_for_the_rest(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=1)
        desk.know_quick_runs(slots=1)
        claims = [desk.waiter(), desk.claim("nothing")]
        desk.submit(*claims)
        desk.await_begun(claims[0])
        closing = threading.Thread(target=desk.runner.close, args=(SOON_S,))
        closing.start()
        assert desk.hows(claims[1]) == [How.RETURNED]
        assert closing.is_alive()
        desk.let_go()
        closing.join(SOON_S)
        assert not closing.is_alive()
        assert desk.hows(claims[0]) == [How.SUCCEEDED]

    def test_close_stops_what_does_not_end_in_time(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=2)
        waiter = desk.waiter()
        desk.begin(waiter)
        desk.runner.close(0.1)
        outcome = desk.outcome(waiter)
        assert (outcome.how, outcome.error_code) == (How.INTERRUPTED, "shutdown")

    def test_closed_runner_takes_nothing(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        desk.run("nothing")
        desk.runner.close(SOON_S)
        assert desk.runner.room() == 0
        late = desk.claim("nothing")
        desk.submit(late)
        assert desk.hows(late) == [How.RETURNED]
        desk.runner.close(SOON_S)

    def test_runner_that_did_nothing_closes_at_once(self, open_desk: OpenDesk) -> None:
        open_desk(trusted=False).runner.close(SOON_S)

    # -- all at once -------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("seed", range(4))
    def test_each_claim_has_one_outcome_whatever_happens(self, open_desk: OpenDesk, seed: int) -> None:
        chance = random.Random(seed)
        desk = open_desk(slots=4, timeouts={"nap": 0.02, "nothing": 5.0})
        for _ in range(150):
            _something(desk, chance)
            desk.collect()
        desk.runner.take_back()
        desk.gather(desk.claims.values())

    def test_each_claim_has_one_outcome_although_many_meddle(self, open_desk: OpenDesk) -> None:
        desk = open_desk(slots=4, timeouts={"nap": 0.02})
        meddlers = [threading.Thread(target=_meddle, args=(desk, random.Random(seed))) for seed in range(3)]
        for meddler in meddlers:
            meddler.start()
        while any(meddler.is_alive() for meddler in meddlers):
            desk.submit(*(_some_claim(desk, random.Random()) for _ in range(desk.runner.room())))
            desk.collect()
        desk.runner.take_back()
        desk.gather(desk.claims.values())


def _meddle(desk: RunnerDriver, chance: random.Random) -> None:
    """Stop and take back what others submit."""
    for _ in range(200):
        held = list(desk.claims.values())[-50:]
        if held and chance.random() < 0.9:
            claim = chance.choice(held)
            desk.runner.stop(claim.run_id, claim.token, chance.choice([StopReason.CANCELLED, StopReason.LOST]))
        else:
            desk.runner.take_back()


def _something(desk: RunnerDriver, chance: random.Random) -> None:
    """Do one thing that may happen to a runner; mostly, give it work."""
    held = [claim for claim in desk.claims.values() if claim.run_id not in desk.outcomes]
    match chance.choices(["submit", "stop", "take back", "lose", "wait"], [60, 25, 4, 1, 10])[0]:
        case "submit":
            number = min(desk.runner.room(), chance.randint(1, 50))
            desk.submit(*(_some_claim(desk, chance) for _ in range(number)))
        case "stop" if held:
            claim = chance.choice(held)
            desk.runner.stop(claim.run_id, claim.token, chance.choice([StopReason.CANCELLED, StopReason.LOST]))
        case "take back":
            desk.runner.take_back()
        case "lose":
            desk.runner.lose()
            desk.trust()
        case "wait" if held:
            desk.outcome(chance.choice(held))


def _some_claim(desk: RunnerDriver, chance: random.Random) -> Claim:
    if chance.random() < 0.8:
        return desk.claim(chance.choice(["nothing", "fail"]))
    return desk.claim("nap", duration_s=chance.choice([0.0, 0.001, 0.01, 0.05]))
