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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from fencepost.core.events import Event
from fencepost.core.runs import Claim, StopReason
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.engine.runners.runner import Runner
from fencepost.testing.waiting import until
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()
SOON_S = 20.0  # how long a loaded machine may take
TRUST_S = 3600.0


class Desk:
    """Somebody who hands a runner its claims, collects what becomes of them, and allows no outcome twice."""

    def __init__(self, runner: Runner, folder: Path) -> None:
        self.runner = runner
        self.claims: dict[int, Claim] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.calls = 0
        self._folder = folder
        self._news = threading.Event()
        self._numbers = count(1)

    def start(self) -> None:
        """Start the runner, without trust."""
        self.runner.start(self._told)

    def trust(self, for_s: float = TRUST_S) -> None:
        """Let it act."""
        self.runner.trust(RUNTIME.monotonic() + for_s)

    def claim(self, job: str, **params: object) -> Claim:
        """Make a claim as the ledger would."""
        run_id, at_us = next(self._numbers), RUNTIME.wall_us()
        return Claim(
            run_id=run_id,
            job=job,
            attempt=1 + run_id % 3,
            token=at_us + run_id,
            params=json.dumps(params),
            schedule=None,
            due_at_us=None,
            window_start_us=None,
            window_end_us=None,
            exclusive_key=None,
            failures=0,
            crashes=0,
            requested_by=None,
            available_at_us=at_us,
            claimed_at_us=at_us,
            ticks=1,
        )

    def waiter(self) -> Claim:
        """Make a claim of a run that goes on until `let_go`."""
        name = f"{len(self.claims)}-{next(self._numbers)}"
        return self.claim("wait_for", go=str(self._folder / "go"), began=str(self._folder / name))

    def submit(self, *claims: Claim) -> None:
        """Hand these over."""
        self.claims.update({claim.run_id: claim for claim in claims})
        self.runner.submit(claims)

    def run(self, job: str, **params: object) -> Outcome:
        """Have one run made, from claim to outcome, as soon as there is room."""
        self.await_room()
        claim = self.claim(job, **params)
        self.submit(claim)
        return self.outcome(claim)

    def begin(self, *claims: Claim) -> None:
        """Hand over waiters, and wait until they all execute."""
        self.submit(*claims)
        for claim in claims:
            self.await_begun(claim)

    def await_begun(self, claim: Claim) -> None:
        """Wait until a waiter executes."""
        until(Path(json.loads(claim.params)["began"]).exists, SOON_S, f"run {claim.run_id} begins")

    def await_room(self, slots: int = 1) -> None:
        """Wait until the runner takes so many."""
        until(lambda: self.runner.room() >= slots, SOON_S, f"there is room for {slots}")

    def let_go(self) -> None:
        """Let all waiters end."""
        (self._folder / "go").touch()

    def outcome(self, claim: Claim) -> Outcome:
        """Wait for one outcome."""
        return self.gather([claim])[0]

    def gather(self, claims: Iterable[Claim]) -> list[Outcome]:
        """Wait to be told, until there is an outcome of each of these. Nobody asks without having been told."""
        wanted = [claim.run_id for claim in claims]
        give_up_at = time.monotonic() + SOON_S
        self.collect()
        while not self.outcomes.keys() >= set(wanted):
            missing = sorted(set(wanted) - self.outcomes.keys())
            assert self._news.wait(give_up_at - time.monotonic()), f"not told of {missing[:10]} within {SOON_S:g} s"
            self._news.clear()
            self.collect()
        return [self.outcomes[run_id] for run_id in wanted]

    def collect(self) -> None:
        """Take what ended."""
        for outcome in self.runner.collect():
            claim = self.claims[outcome.run_id]
            assert (outcome.attempt, outcome.token) == (claim.attempt, claim.token)
            assert outcome.run_id not in self.outcomes, f"{outcome} after {self.outcomes[outcome.run_id]}"
            self.outcomes[outcome.run_id] = outcome

    def know_quick_runs(self, slots: int) -> None:
        """Make quick runs until the runner claims ahead."""

        def is_ahead() -> bool:
            self.gather_quick(max(self.runner.room(), 0))
            return self.runner.room() > slots + 2

        until(is_ahead, SOON_S, "it claims ahead of its slots")

    def gather_quick(self, number: int) -> list[Outcome]:
        """Make so many runs of nothing."""
        claims = [self.claim("nothing") for _ in range(number)]
        self.submit(*claims)
        return self.gather(claims)

    def hows(self, *claims: Claim) -> list[str]:
        """Wait, and say how these ended."""
        return [str(outcome.how) for outcome in self.gather(claims)]

    def _told(self) -> None:
        self.calls += 1
        self._news.set()


OpenDesk = Callable[..., Desk]


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
        desks: list[Desk] = []

        def open_desk(
            *, slots: int = 2, timeouts: Mapping[str, float | None] | None = None, trusted: bool = True
        ) -> Desk:
            desk = Desk(self.make(slots=slots, timeouts=timeouts or {}, emit=events.append), tmp_path)
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
        assert desk.hows(*claims) == [How.LOST] * 3
        assert desk.runner.room() == 0
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
        assert (outcome.how, outcome.error_code) == (How.CRASHED, "shutdown")

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


def _meddle(desk: Desk, chance: random.Random) -> None:
    """Stop and take back what others submit."""
    for _ in range(200):
        held = list(desk.claims.values())[-50:]
        if held and chance.random() < 0.9:
            claim = chance.choice(held)
            desk.runner.stop(claim.run_id, claim.token, chance.choice([StopReason.CANCELLED, StopReason.LOST]))
        else:
            desk.runner.take_back()


def _something(desk: Desk, chance: random.Random) -> None:
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


def _some_claim(desk: Desk, chance: random.Random) -> Claim:
    if chance.random() < 0.8:
        return desk.claim(chance.choice(["nothing", "fail"]))
    return desk.claim("nap", duration_s=chance.choice([0.0, 0.001, 0.01, 0.05]))
