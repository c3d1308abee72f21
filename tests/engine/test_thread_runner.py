"""The thread runner: the contract of runners, and what is particular to threads that cannot be killed."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from fencepost.core.events import Event, What
from fencepost.core.policy import Policy
from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import Runtime, Task
from fencepost.engine.invoke import invoke
from fencepost.engine.jobs import Job
from fencepost.engine.run import Run
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.engine.runners.thread import ThreadRunner
from fencepost.errors import Stopped
from fencepost.testing import until
from fencepost.testing.runner_contract import RunnerContract
from fencepost.testing.runner_driver import RUNTIME, SOON_S
from fencepost.testing.runner_jobs import functions
from fencepost.threaded import ThreadedRuntime


class TestThreads(RunnerContract):
    def make(self, *, slots, timeouts, emit):
        runner = ThreadRunner(
            lambda claim: invoke(functions.jobs[claim.job], claim, context),
            slots=slots,
            timeouts=timeouts,
            runtime=RUNTIME,
            emit=emit,
        )
        context = replace(functions.worker_context(), standing=runner)
        return runner


class Gate:
    """An invocation of our own: runs that do what a test tells them, in this process."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began: dict[int, threading.Event] = defaultdict(threading.Event)
        self.ended: dict[int, threading.Event] = defaultdict(threading.Event)
        self.threads: list[threading.Thread] = []

    def __call__(self, claim: Claim) -> Outcome:
        self.threads.append(threading.current_thread())
        self.began[claim.run_id].set()
        try:
            return self.do(claim)
        finally:
            self.ended[claim.run_id].set()

    def do(self, claim: Claim) -> Outcome:
        if claim.job == "wait":
            assert self.go.wait(SOON_S)
        if claim.job == "raise":
            raise SystemExit("planted")
        return Outcome(claim.run_id, claim.attempt, claim.token, How.SUCCEEDED)


class Stand:
    """A thread runner on such an invocation, and somebody who collects."""

    def __init__(self, *, slots: int = 2, runtime: Runtime = RUNTIME, **options: Any) -> None:
        self.gate = Gate()
        self.events: list[Event] = []
        self.calls = 0
        self.outcomes: list[Outcome] = []
        self.runner = ThreadRunner(
            self.gate, **{"timeouts": {}} | options, slots=slots, runtime=runtime, emit=self.events.append
        )
        self.runner.start(self._told)
        self.runner.trust(RUNTIME.monotonic() + 3600.0)

    def begin(self, run_id: int, job: str = "wait", token: int | None = None) -> Claim:
        """Submit a claim and wait until it executes."""
        claim = self.submit((run_id, job), token=token)[0]
        assert self.gate.began[run_id].wait(SOON_S)
        return claim

    def submit(self, *runs: tuple[int, str], token: int | None = None) -> list[Claim]:
        claims = [
            Claim(run_id, job, 1, token or run_id, "{}", None, None, None, None, None, 0, 0, None, 0, 0, 1)
            for run_id, job in runs
        ]
        self.runner.submit(claims)
        return claims

    def hows(self, number: int) -> dict[int, str]:
        """Wait for so many outcomes since the last call, and say how each run ended."""

        def collected() -> bool:
            self.outcomes += self.runner.collect()
            return len(self.outcomes) >= number

        until(collected, SOON_S, f"{number} outcomes")
        hows = {outcome.run_id: str(outcome.how) for outcome in self.outcomes}
        assert len(hows) == len(self.outcomes) == number
        self.outcomes.clear()
        return hows

    def learn_that_runs_are_quick(self) -> None:
        numbers = count(1_000_000)
        while not self.runner._ahead.is_quick:
            self.submit((next(numbers), "nothing"))
            self.hows(1)

    def told(self, what: What) -> list[Event]:
        return [event for event in self.events if event.what is what]

    def _told(self) -> None:
        self.calls += 1


@pytest.fixture
def open_stand() -> Iterator[Callable[..., Stand]]:
    stands: list[Stand] = []

    def open_stand(**options: Any) -> Stand:
        stands.append(Stand(**options))
        return stands[-1]

    yield open_stand
    for stand in stands:
        stand.gate.go.set()
        stand.runner.close(SOON_S)
        assert stand.runner.running() == 0


OpenStand = Callable[..., Stand]


class TestThreadsThatCannotBeKilled:
    def test_stopped_run_is_reported_at_once_and_another_thread_takes_its_place(self, open_stand: OpenStand) -> None:
        stand = open_stand(slots=1 + 1)
        stand.begin(1)
        stand.begin(2)
        stand.runner.stop(1, 1, StopReason.CANCELLED)
        assert stand.hows(1) == {1: How.CANCELLED}
        assert not stand.gate.ended[1].is_set()
        stand.begin(3)
        assert len(set(stand.gate.threads)) == 3

    def test_what_a_stopped_run_returns_later_is_dropped(self, open_stand: OpenStand) -> None:
        stand = open_stand()
        stand.begin(1)
        stand.runner.stop(1, 1, StopReason.TIMED_OUT)
        assert stand.hows(1) == {1: How.TIMED_OUT}
        stand.gate.go.set()
        assert stand.gate.ended[1].wait(SOON_S)
        stand.submit((2, "nothing"))
        assert stand.hows(1) == {2: How.SUCCEEDED}
        stand.runner.close(SOON_S)
        assert stand.runner.collect() == []

    def test_same_run_under_a_new_token_is_not_ended_by_its_former_self(self, open_stand: OpenStand) -> None:
        stand = open_stand()
        stand.begin(1, token=7)
        stand.runner.stop(1, 7, StopReason.LOST)
        assert stand.hows(1) == {1: How.LOST}
        stand.gate.began[1].clear()
        stand.gate.ended[1].clear()
        second_go = threading.Event()
        first_go, stand.gate.go = stand.gate.go, second_go
        stand.begin(1, token=8)
        first_go.set()
        assert stand.gate.ended[1].wait(SOON_S)
        assert stand.runner.running() == 1
        assert stand.runner.collect() == []
        second_go.set()
        assert stand.hows(1) == {1: How.SUCCEEDED}

    def test_timeout_is_reported_at_its_time_although_the_thread_goes_on(self, open_stand: OpenStand) -> None:
        stand = open_stand(timeouts={"wait": 0.2})
        claim = stand.begin(1)
        began_at = RUNTIME.monotonic()
        assert stand.hows(1) == {1: How.TIMED_OUT}
        assert RUNTIME.monotonic() - began_at >= 0.15
        assert not stand.gate.ended[1].is_set()
        assert stand.runner.stopped(claim.run_id, claim.token) is StopReason.TIMED_OUT

    def test_it_says_which_run_goes_on(self, open_stand: OpenStand) -> None:
        stand = open_stand()
        stand.begin(1)
        stand.runner.stop(1, 1, StopReason.CANCELLED)
        (event,) = stand.told(What.RUN_ABANDONED)
        assert (event.job, event.run_id, event.token) == ("wait", 1, 1)

    def test_it_says_that_the_next_run_of_its_key_may_begin_beside_it(self, open_stand: OpenStand) -> None:
        stand = open_stand(timeouts={"wait": 0.1})
        claim = Claim(1, "wait", 1, 1, "{}", None, None, None, None, None, 0, 0, None, 0, 0, 1)
        stand.runner.submit([claim._replace(exclusive_key="account:7")])
        assert stand.hows(1) == {1: How.TIMED_OUT}
        (event,) = stand.told(What.RUN_ABANDONED)
        assert "'account:7'" in (event.reason or "")
        assert "may start while this one still executes" in (event.reason or "")

    def test_once_all_slots_are_given_up_it_takes_nothing_and_says_so(self, open_stand: OpenStand) -> None:
        stand = open_stand(slots=2)
        for run_id in (1, 2):
            stand.begin(run_id)
            stand.runner.stop(run_id, run_id, StopReason.CANCELLED)
        assert stand.runner.room() == 0
        (event,) = stand.told(What.RUNNER_WARNING)
        assert event.job == "wait"
        assert "run.check()" in (event.reason or "")
        stand.gate.go.set()
        until(lambda: stand.runner.room() == 2, SOON_S, "room when they have ended")
        stand.begin(3, "nothing")
        assert stand.hows(3) == {1: How.CANCELLED, 2: How.CANCELLED, 3: How.SUCCEEDED}

    def test_threads_that_were_given_up_end_with_their_run(self, open_stand: OpenStand) -> None:
        stand = open_stand()
        stand.begin(1)
        (thread,) = stand.gate.threads
        stand.runner.stop(1, 1, StopReason.CANCELLED)
        stand.gate.go.set()
        thread.join(SOON_S)
        assert not thread.is_alive()
        assert stand.runner.stopped(1, 1) is StopReason.LOST, "nothing is remembered of a run that has ended"

    def test_system_exit_ends_a_run_and_not_its_thread(self, open_stand: OpenStand) -> None:
        stand = open_stand(slots=1)
        stand.submit((1, "raise"))
        assert stand.hows(1) == {1: How.FAILED}
        stand.submit((2, "nothing"))
        assert stand.hows(1) == {2: How.SUCCEEDED}
        assert len(set(stand.gate.threads)) == 1


class TestStanding:
    def test_run_may_go_on_until_it_is_stopped_and_is_told_why(self, open_stand: OpenStand) -> None:
        stand = open_stand()
        stand.begin(1)
        assert stand.runner.stopped(1, 1) is None
        stand.runner.stop(1, 1, StopReason.CANCELLED)
        assert stand.runner.stopped(1, 1) is StopReason.CANCELLED

    def test_run_has_lost_when_all_is_lost(self, open_stand: OpenStand) -> None:
        stand = open_stand()
        stand.begin(1)
        stand.runner.lose()
        assert stand.runner.stopped(1, 1) is StopReason.LOST
        stand.runner.trust(RUNTIME.monotonic() + 3600)
        assert stand.runner.stopped(1, 1) is StopReason.LOST, "new trust is not for old runs"

    def test_run_has_lost_when_trust_has_run_out_although_nobody_said_so(self, open_stand: OpenStand) -> None:
        clock = SteppedRuntime()
        stand = open_stand(runtime=clock)
        stand.runner.trust(RUNTIME.monotonic() + 3600)
        stand.begin(1)
        clock.ahead_s = 4000.0
        assert stand.runner.stopped(1, 1) is StopReason.LOST
        assert stand.runner.room() == 0
        stand.runner.trust(clock.monotonic() + 3600)
        assert stand.runner.stopped(1, 1) is None

    def test_run_that_has_ended_may_not_go_on(self, open_stand: OpenStand) -> None:
        stand = open_stand()
        stand.begin(1, "nothing")
        stand.hows(1)
        assert stand.runner.stopped(1, 1) is StopReason.LOST

    def test_nothing_starts_while_there_is_no_trust(self, open_stand: OpenStand) -> None:
        clock = SteppedRuntime()
        stand = open_stand(runtime=clock)
        stand.begin(1, "nothing")
        assert stand.hows(1) == {1: How.SUCCEEDED}
        clock.ahead_s = 4000.0
        stand.submit((2, "nothing"))
        assert not stand.gate.began[2].is_set()
        assert stand.runner.running() == 1
        stand.runner.trust(clock.monotonic() + 3600)
        assert stand.hows(1) == {2: How.SUCCEEDED}

    def test_thread_at_work_begins_nothing_more_once_trust_has_run_out(self, open_stand: OpenStand) -> None:
        clock = SteppedRuntime()
        stand = open_stand(slots=1, runtime=clock)
        stand.begin(1)
        stand.submit((2, "nothing"))
        clock.ahead_s = 4000.0
        stand.gate.go.set()
        assert stand.hows(1) == {1: How.SUCCEEDED}
        until(lambda: stand.runner._idle, SOON_S, "the thread rests")
        assert not stand.gate.began[2].is_set()
        stand.runner.trust(clock.monotonic() + 3600)
        assert stand.hows(1) == {2: How.SUCCEEDED}

    def test_check_raises_in_a_run_that_was_stopped(self) -> None:
        heard: list[str] = []
        began, over = threading.Event(), threading.Event()

        def checks(run: Run) -> None:
            began.set()
            try:
                while True:
                    run.check()
            except Stopped as stopped:
                heard.append(stopped.reason)
                raise
            finally:
                over.set()

        job = Job.of(checks, policy=Policy.of())
        runner = ThreadRunner(lambda claim: invoke(job, claim, context), timeouts={}, runtime=RUNTIME)
        context = replace(functions.worker_context(), standing=runner)
        runner.start(lambda: None)
        runner.trust(RUNTIME.monotonic() + 3600)
        runner.submit([Claim(1, "checks", 1, 1, "{}", None, None, None, None, None, 0, 0, None, 0, 0, 1)])
        assert began.wait(SOON_S)
        runner.stop(1, 1, StopReason.CANCELLED)
        assert over.wait(SOON_S)
        assert heard == [StopReason.CANCELLED]
        runner.close(SOON_S)
        assert [outcome.how for outcome in runner.collect()] == [How.CANCELLED]


class TestFewThreads:
    def test_there_is_no_thread_before_the_first_claim(self, open_stand: OpenStand) -> None:
        spawned = CountingRuntime()
        stand = open_stand(runtime=spawned)
        assert spawned.names == []
        stand.begin(1, "nothing")
        stand.hows(1)
        assert sorted(spawned.names) == ["fencepost-run-1", "fencepost-thread-watcher"]

    def test_quick_run_behind_one_that_turns_out_long_gets_another_thread(self, open_stand: OpenStand) -> None:
        stand = open_stand(slots=4)
        stand.learn_that_runs_are_quick()
        stand.submit((1, "wait"), (2, "nothing"), (3, "wait"), (4, "nothing"))
        assert stand.hows(2) == {2: How.SUCCEEDED, 4: How.SUCCEEDED}

    def test_that_thread_is_woken_within_milliseconds(self, open_stand: OpenStand) -> None:
        tries = [self._waited_behind_a_long_run(open_stand(slots=4)) for _ in range(5)]
        assert min(tries) < 0.1, "or nobody noticed before the next regular look"

    @staticmethod
    def _waited_behind_a_long_run(stand: Stand) -> float:
        stand.learn_that_runs_are_quick()
        submitted_at = RUNTIME.monotonic()
        stand.submit((1, "wait"), (2, "nothing"))
        assert stand.gate.ended[2].wait(SOON_S)
        return RUNTIME.monotonic() - submitted_at

    def test_threads_that_quick_runs_do_not_need_leave_them_to_one(self, open_stand: OpenStand) -> None:
        stand, idle = open_stand(slots=4), set()

        def look_around(claim: Claim) -> Outcome:
            idle.add(len(stand.runner._idle))
            return Outcome(claim.run_id, claim.attempt, claim.token, How.SUCCEEDED)

        stand.gate.do = look_around  # type: ignore[method-assign]
        stand.submit(*((run_id, "nothing") for run_id in range(1, 20_001)))
        assert len(stand.hows(20_000)) == 20_000
        threads = len(stand.runner._thread_slots)
        assert threads > 1, "as long as nothing was known, every claim got a thread"
        assert threads - 1 in idle, "and then all but one left the rest to that one"

    def test_outcomes_before_a_long_run_are_told_without_waiting_for_it(self, open_stand: OpenStand) -> None:
        stand = open_stand(slots=1)
        stand.learn_that_runs_are_quick()
        calls = stand.calls
        stand.submit((1, "nothing"), (2, "wait"))
        until(lambda: stand.calls > calls, SOON_S, "somebody is told")
        assert stand.hows(1) == {1: How.SUCCEEDED}

    def test_whoever_does_not_collect_is_told_once(self, open_stand: OpenStand) -> None:
        stand = open_stand(slots=4)
        for run_id in range(1, 200):
            stand.submit((run_id, "nothing"))
        until(lambda: stand.runner.running() == 0, SOON_S, "all have ended")
        until(lambda: stand.calls, SOON_S, "somebody is told")
        assert stand.calls == 1

    def test_runs_do_not_see_each_others_context(self, open_stand: OpenStand) -> None:
        mark: ContextVar[str] = ContextVar("mark", default="clean")
        seen: list[str] = []
        stand = open_stand(slots=1)

        def leave_a_mark(claim: Claim) -> Outcome:
            seen.append(mark.get())
            mark.set("soiled")
            return Outcome(claim.run_id, claim.attempt, claim.token, How.SUCCEEDED)

        stand.gate.do = leave_a_mark  # type: ignore[method-assign]
        for run_id in (1, 2):
            stand.begin(run_id, "nothing")
            stand.hows(1)
        assert seen == ["clean", "clean"]

    @pytest.mark.parametrize("refused", [1, 2, 3])
    def test_where_no_thread_can_be_had_claims_are_handed_back_and_it_tries_again_later(
        self, open_stand: OpenStand, refused: int
    ) -> None:
        stand = open_stand(runtime=CountingRuntime(refuse=refused))
        hows = []
        while How.SUCCEEDED not in hows:
            until(lambda: stand.runner.room() > 0, SOON_S, "it tries again")
            stand.submit((len(hows) + 1, "nothing"))
            hows += stand.hows(1).values()
        assert set(hows[:-1]) <= {How.RETURNED}
        troubles = [event.reason or "" for event in stand.told(What.RUNNER_WARNING)]
        assert len(troubles) == refused
        assert all("can't start new thread" in trouble for trouble in troubles)


class SteppedRuntime(ThreadedRuntime):
    """A clock that can be put forward."""

    ahead_s = 0.0

    def __init__(self) -> None:
        self.monotonic = lambda: ThreadedRuntime.monotonic() + self.ahead_s  # type: ignore[method-assign]


class CountingRuntime(ThreadedRuntime):
    """Notes which threads are started, and refuses the first few."""

    def __init__(self, refuse: int = 0) -> None:
        self.names: list[str] = []
        self._refuse = refuse

    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        if self._refuse:
            self._refuse -= 1
            raise RuntimeError("can't start new thread")
        self.names.append(name)
        return super().spawn(name, work)
