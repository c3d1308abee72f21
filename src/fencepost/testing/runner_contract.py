"""The contract of runners: tests that every runner must pass.

Derive a class for each runner and define how to make one::

    class TestThreads(RunnerContract):
        def make(self, *, slots, timeouts, emit):
            return ThreadRunner(..., slots=slots, timeouts=timeouts, emit=emit)

The runner has to execute the jobs of `fencepost.testing.runner_jobs`. Each test checks one promise and ends with
`close`, after which each claim must have had exactly one outcome. No test sleeps for a fixed time: tests wait for what
they expect, with a deadline.
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

OpenDriver = Callable[..., RunnerDriver]


class RunnerContract:
    """Derive from it; see the module's docstring."""

    def make(self, *, slots: int, timeouts: Mapping[str, float | None], emit: Callable[[Event], None]) -> Runner:
        """Return a runner that executes the jobs of `fencepost.testing.runner_jobs`."""
        raise NotImplementedError

    @pytest.fixture
    def events(self) -> list[Event]:
        """Return the list of the runner's events."""
        return []

    @pytest.fixture
    def open_driver(self, tmp_path: Path, events: list[Event]) -> Iterator[OpenDriver]:
        """Yield a function that starts a runner. At the end each is closed, and every claim must have an outcome."""
        drivers: list[RunnerDriver] = []

        def open_driver(
            *, slots: int = 2, timeouts: Mapping[str, float | None] | None = None, trusted: bool = True
        ) -> RunnerDriver:
            driver = RunnerDriver(self.make(slots=slots, timeouts=timeouts or {}, emit=events.append), tmp_path)
            drivers.append(driver)
            driver.start()
            if trusted:
                driver.trust()
                driver.await_room(slots)
            return driver

        yield open_driver
        for driver in drivers:
            driver.let_go()
            driver.runner.close(SOON_S)
            driver.collect()
            assert driver.outcomes.keys() == driver.claims.keys(), (
                "every claim has an outcome once the runner is closed"
            )
            assert driver.runner.running() == 0

    # -- executing ---------------------------------------------------------------------------------------------------

    def test_every_claim_comes_back_once(self, open_driver: OpenDriver) -> None:
        driver, left = open_driver(slots=3), 400
        while left:
            driver.await_room()
            number = min(driver.runner.room(), left)
            assert {outcome.how for outcome in driver.gather_quick(number)} == {How.SUCCEEDED}
            left -= number
        assert driver.runner.running() == 0

    def test_outcome_carries_the_result(self, open_driver: OpenDriver) -> None:
        outcome = open_driver().run("double", n=21)
        assert (outcome.how, outcome.result) == (How.SUCCEEDED, "42")

    @pytest.mark.parametrize("job", ["fail", "leave"])
    def test_what_a_job_raises_ends_its_run_and_nothing_else(self, open_driver: OpenDriver, job: str) -> None:
        driver = open_driver(slots=1)
        outcome = driver.run(job)
        assert outcome.how == How.FAILED
        assert outcome.error_code == {"fail": "ValueError", "leave": "SystemExit"}[job]
        assert driver.run("nothing").how == How.SUCCEEDED

    def test_slots_execute_at_the_same_time(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=3)
        waiters = [driver.waiter() for _ in range(3)]
        driver.begin(*waiters)
        driver.let_go()
        assert driver.hows(*waiters) == [How.SUCCEEDED] * 3

    def test_room_is_what_is_free_as_long_as_nothing_is_known_of_runs(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=3)
        assert driver.runner.room() == 3
        driver.begin(driver.waiter(), driver.waiter())
        assert driver.runner.room() == 1
        assert driver.runner.running() == 2

    def test_quick_runs_are_claimed_ahead_and_long_ones_are_not(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=2)
        driver.know_quick_runs(slots=2)
        driver.begin(driver.waiter(), driver.waiter())
        until(lambda: driver.runner.room() == 0, SOON_S, "no room behind runs that take long")

    def test_whoever_collects_is_told_each_time(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=1)
        for _ in range(3):
            before, claim = driver.calls, driver.claim("nothing")
            driver.submit(claim)
            until(lambda before=before: driver.calls > before, SOON_S, "the callback is called")  # type: ignore[misc]
            assert driver.hows(claim) == [How.SUCCEEDED]

    # -- trust -------------------------------------------------------------------------------------------------------

    def test_there_is_no_room_without_trust(self, open_driver: OpenDriver) -> None:
        driver = open_driver(trusted=False)
        assert driver.runner.room() == 0
        driver.trust()
        assert driver.run("nothing").how == How.SUCCEEDED

    def test_trust_is_never_shortened(self, open_driver: OpenDriver) -> None:
        driver = open_driver()
        driver.trust(-1.0)
        assert driver.run("nothing").how == How.SUCCEEDED

    def test_lost_trust_ends_everything(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=1)
        claims = driver.begin_before_two()
        driver.runner.lose()
        assert driver.hows(*claims) == [How.LOST, How.RETURNED, How.RETURNED], "nothing is lost with what had not begun"
        assert driver.runner.room() == 0
        driver.let_go()
        driver.trust()
        assert driver.run("nothing").how == How.SUCCEEDED

    def test_what_is_not_fenced_is_stopped_also_when_nobody_knows(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=1)
        waiter = driver.waiter()
        driver.begin(waiter)
        assert driver.runner.suspend() == []
        assert driver.hows(waiter) == [How.LOST]
        assert driver.runner.room() == 0
        driver.runner.resume([(waiter.run_id, waiter.token)])
        driver.let_go()
        driver.trust()
        assert driver.run("nothing").how == How.SUCCEEDED

    # -- stopping ----------------------------------------------------------------------------------------------------

    def test_run_that_outlives_its_timeout_is_stopped(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=1, timeouts={"wait_for": 0.3, "nothing": None})
        waiter = driver.waiter()
        driver.submit(waiter)
        outcome = driver.outcome(waiter)
        assert outcome.how == How.TIMED_OUT
        assert outcome.took_us >= 300_000
        assert "timeout" in (outcome.error or "")
        driver.let_go()
        assert driver.run("nothing").how == How.SUCCEEDED

    def test_stopped_run_is_reported_as_what_it_was_stopped_for(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=3)
        cancelled, lost, other = waiters = [driver.waiter() for _ in range(3)]
        driver.begin(*waiters)
        driver.runner.stop(cancelled.run_id, cancelled.token, StopReason.CANCELLED)
        driver.runner.stop(lost.run_id, lost.token, StopReason.LOST)
        assert driver.hows(cancelled, lost) == [How.CANCELLED, How.LOST]
        assert driver.runner.running() == 1
        driver.let_go()
        assert driver.hows(other) == [How.SUCCEEDED]

    def test_claim_that_is_stopped_before_it_began_never_begins(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=1)
        driver.know_quick_runs(slots=1)
        first, second = driver.waiter(), driver.waiter()
        driver.submit(first, second)
        driver.await_begun(first)
        driver.runner.stop(second.run_id, second.token, StopReason.CANCELLED)
        assert driver.hows(second) == [How.CANCELLED]
        driver.let_go()
        assert driver.hows(first) == [How.SUCCEEDED]
        assert driver.run("nothing").how == How.SUCCEEDED
        assert not Path(json.loads(second.params)["began"]).exists()

    def test_stopping_what_it_does_not_have_changes_nothing(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=1)
        waiter = driver.waiter()
        driver.begin(waiter)
        driver.runner.stop(waiter.run_id, waiter.token - 1, StopReason.CANCELLED)
        driver.runner.stop(waiter.run_id + 1, waiter.token, StopReason.CANCELLED)
        driver.let_go()
        assert driver.hows(waiter) == [How.SUCCEEDED]
        driver.runner.stop(waiter.run_id, waiter.token, StopReason.CANCELLED)
        assert driver.run("nothing").how == How.SUCCEEDED

    # -- handing back ------------------------------------------------------------------------------------------------

    def test_what_has_not_begun_can_be_taken_back(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=1)
        claims = driver.begin_before_two()
        driver.runner.take_back()
        assert driver.hows(*claims[1:]) == [How.RETURNED] * 2
        driver.let_go()
        assert driver.hows(claims[0]) == [How.SUCCEEDED]

    def test_what_waits_too_long_behind_a_long_run_is_handed_back(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=1)
        claims = driver.begin_before_two()
        assert driver.hows(*claims[1:]) == [How.RETURNED] * 2
        assert driver.runner.running() == 1

    # -- closing -----------------------------------------------------------------------------------------------------

    def test_close_hands_back_and_waits_for_the_rest(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=1)
        driver.know_quick_runs(slots=1)
        claims = [driver.waiter(), driver.claim("nothing")]
        driver.submit(*claims)
        driver.await_begun(claims[0])
        closing = threading.Thread(target=driver.runner.close, args=(SOON_S,))
        closing.start()
        assert driver.hows(claims[1]) == [How.RETURNED]
        assert closing.is_alive()
        driver.let_go()
        closing.join(SOON_S)
        assert not closing.is_alive()
        assert driver.hows(claims[0]) == [How.SUCCEEDED]

    def test_close_stops_what_does_not_end_in_time(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=2)
        waiter = driver.waiter()
        driver.begin(waiter)
        driver.runner.close(0.1)
        outcome = driver.outcome(waiter)
        assert (outcome.how, outcome.error_code) == (How.INTERRUPTED, "shutdown")

    def test_closed_runner_takes_nothing(self, open_driver: OpenDriver) -> None:
        driver = open_driver()
        driver.run("nothing")
        driver.runner.close(SOON_S)
        assert driver.runner.room() == 0
        late = driver.claim("nothing")
        driver.submit(late)
        assert driver.hows(late) == [How.RETURNED]
        driver.runner.close(SOON_S)

    def test_runner_that_did_nothing_closes_at_once(self, open_driver: OpenDriver) -> None:
        open_driver(trusted=False).runner.close(SOON_S)

    # -- all at once -------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("seed", range(4))
    def test_each_claim_has_one_outcome_whatever_happens(self, open_driver: OpenDriver, seed: int) -> None:
        chance = random.Random(seed)
        driver = open_driver(slots=4, timeouts={"nap": 0.02, "nothing": 5.0})
        for _ in range(150):
            _something(driver, chance)
            driver.collect()
        driver.runner.take_back()
        driver.gather(driver.claims.values())

    def test_each_claim_has_one_outcome_although_many_meddle(self, open_driver: OpenDriver) -> None:
        driver = open_driver(slots=4, timeouts={"nap": 0.02})
        meddlers = [threading.Thread(target=_meddle, args=(driver, random.Random(seed))) for seed in range(3)]
        for meddler in meddlers:
            meddler.start()
        while any(meddler.is_alive() for meddler in meddlers):
            driver.submit(*(_some_claim(driver, random.Random()) for _ in range(driver.runner.room())))
            driver.collect()
        driver.runner.take_back()
        driver.gather(driver.claims.values())


def _meddle(driver: RunnerDriver, chance: random.Random) -> None:
    """Stop and take back claims that another thread submits."""
    for _ in range(200):
        held = list(driver.claims.values())[-50:]
        if held and chance.random() < 0.9:
            claim = chance.choice(held)
            driver.runner.stop(claim.run_id, claim.token, chance.choice([StopReason.CANCELLED, StopReason.LOST]))
        else:
            driver.runner.take_back()


def _something(driver: RunnerDriver, chance: random.Random) -> None:
    """Do one random thing to a runner; mostly, give it work."""
    held = [claim for claim in driver.claims.values() if claim.run_id not in driver.outcomes]
    match chance.choices(["submit", "stop", "take back", "lose", "wait"], [60, 25, 4, 1, 10])[0]:
        case "submit":
            number = min(driver.runner.room(), chance.randint(1, 50))
            driver.submit(*(_some_claim(driver, chance) for _ in range(number)))
        case "stop" if held:
            claim = chance.choice(held)
            driver.runner.stop(claim.run_id, claim.token, chance.choice([StopReason.CANCELLED, StopReason.LOST]))
        case "take back":
            driver.runner.take_back()
        case "lose":
            driver.runner.lose()
            driver.trust()
        case "wait" if held:
            driver.outcome(chance.choice(held))


def _some_claim(driver: RunnerDriver, chance: random.Random) -> Claim:
    if chance.random() < 0.8:
        return driver.claim(chance.choice(["nothing", "fail"]))
    return driver.claim("nap", duration_s=chance.choice([0.0, 0.001, 0.01, 0.05]))
