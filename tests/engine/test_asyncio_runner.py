"""The asyncio runner: the contract of runners, and what is particular to tasks on a loop of their own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim, StopReason
from fencepost.engine.invoke import invoke_async
from fencepost.engine.runners.asyncio import AsyncioRunner
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.testing import until
from fencepost.testing.runner_contract import RunnerContract
from fencepost.testing.runner_driver import RUNTIME, SOON_S
from fencepost.testing.runner_jobs import coroutines

Work = Callable[[Claim], Coroutine[Any, Any, Any]]


class TestAsyncio(RunnerContract):
    def make(self, *, slots, timeouts, emit):
        runner = AsyncioRunner(
            lambda claim: invoke_async(coroutines.jobs[claim.job], claim, context),
            slots=slots,
            timeouts=timeouts,
            runtime=RUNTIME,
            emit=emit,
        )
        context = replace(coroutines.worker_context(), standing=runner)
        return runner


class Stand:
    """An asyncio runner whose runs do what a test tells them, and somebody who collects."""

    def __init__(self, **options: Any) -> None:
        self.events: list[Event] = []
        self.began = threading.Event()
        self.go = threading.Event()
        self.work: dict[int, Work] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self.runner = AsyncioRunner(
            self._invoke, **{"timeouts": {}} | options, runtime=RUNTIME, emit=self.events.append
        )
        self._numbers = count(1)
        self.runner.start(lambda: None)
        self.runner.trust(RUNTIME.monotonic() + 3600)

    async def _invoke(self, claim: Claim) -> Outcome:
        self.loop = asyncio.get_running_loop()
        self.began.set()
        await self.work[claim.run_id](claim)
        return Outcome(claim.run_id, claim.attempt, claim.token, How.SUCCEEDED)

    def submit(self, *works: Work, job: str = "job") -> list[Claim]:
        numbers = [next(self._numbers) for _ in works]
        self.work |= dict(zip(numbers, works, strict=True))
        claims = [Claim(n, job, 1, n, "{}", None, None, None, None, None, 0, 0, None, 0, 0, 1) for n in numbers]
        self.runner.submit(claims)
        return claims

    def begin(self, work: Work, job: str = "job") -> Claim:
        """Submit a claim and wait until it executes."""
        self.began.clear()
        (claim,) = self.submit(work, job=job)
        assert self.began.wait(SOON_S)
        return claim

    def how(self, claim: Claim) -> str:
        """Wait for an outcome."""

        def collected() -> Outcome | None:
            for outcome in self.runner.collect():
                assert outcome.run_id not in self.outcomes
                self.outcomes[outcome.run_id] = outcome
            return self.outcomes.get(claim.run_id)

        return str(until(collected, SOON_S, f"an outcome of {claim.run_id}").how)

    def told(self, what: What) -> list[Event]:
        return [event for event in self.events if event.what is what]

    async def block(self, claim: Claim) -> None:
        """Keep the loop from doing anything else."""
        assert self.go.wait(SOON_S)


@pytest.fixture
def open_stand() -> Iterator[Callable[..., Stand]]:
    stands: list[Stand] = []

    def open_stand(**options: Any) -> Stand:
        stands.append(Stand(**options))
        return stands[-1]

    yield open_stand
    for stand in stands:
        stand.go.set()
        stand.runner.close(0)
        assert stand.runner.running() == 0


OpenStand = Callable[..., Stand]


async def nothing(claim: Claim) -> None:
    pass


async def forever(claim: Claim) -> None:
    await asyncio.Event().wait()


def our_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("fencepost-")}


class TestLoop:
    def test_there_is_no_loop_before_the_first_claim_and_none_after_close(self, open_stand: OpenStand) -> None:
        before = our_threads()
        stand = open_stand()
        assert our_threads() == before
        assert stand.how(stand.begin(nothing)) == How.SUCCEEDED
        assert "fencepost-asyncio" in our_threads()
        stand.runner.close(1.0)
        assert stand.loop is not None
        until(lambda: our_threads() == before, SOON_S, "its threads end")
        assert stand.loop.is_closed()

    def test_it_is_not_the_users_loop(self, open_stand: OpenStand) -> None:
        stand = open_stand()

        async def main() -> None:
            claim = stand.begin(nothing)
            assert stand.how(claim) == How.SUCCEEDED
            assert stand.loop is not asyncio.get_running_loop()

        asyncio.run(main())

    def test_runs_do_not_see_each_others_context_nor_the_submitters(self, open_stand: OpenStand) -> None:
        mark: ContextVar[str] = ContextVar("mark", default="clean")
        mark.set("the submitter's")
        seen: list[str] = []

        async def leave_a_mark(claim: Claim) -> None:
            seen.append(mark.get())
            mark.set("soiled")

        stand = open_stand()
        for _ in range(2):
            assert stand.how(stand.begin(leave_a_mark)) == How.SUCCEEDED
        assert seen == ["clean", "clean"]

    def test_task_left_behind_that_exits_does_not_end_the_loop(self, open_stand: OpenStand) -> None:
        left: list[asyncio.Task[None]] = []

        async def leave_something_behind(claim: Claim) -> None:
            left.append(asyncio.create_task(exit_later()))

        async def exit_later() -> None:
            raise SystemExit("planted")

        stand = open_stand()
        assert stand.how(stand.begin(leave_something_behind)) == How.SUCCEEDED
        assert stand.how(stand.begin(nothing)) == How.SUCCEEDED
        (event,) = stand.told(What.RUNNER_WARNING)
        assert "planted" in (event.reason or "")

    def test_close_cancels_what_jobs_left_running(self, open_stand: OpenStand) -> None:
        ended = threading.Event()
        left: list[asyncio.Task[None]] = []

        async def leave_something_behind(claim: Claim) -> None:
            left.append(asyncio.create_task(go_on()))

        async def go_on() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        stand = open_stand()
        assert stand.how(stand.begin(leave_something_behind)) == How.SUCCEEDED
        stand.runner.close(1.0)
        assert ended.wait(SOON_S)

    def test_more_claims_than_slots_wait_for_their_turn(self, open_stand: OpenStand) -> None:
        at_work, most = 0, 0

        async def count_in(claim: Claim) -> None:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            await asyncio.sleep(0.001)
            at_work -= 1

        stand = open_stand(slots=3)
        claims = stand.submit(*[count_in] * 30)
        assert {stand.how(claim) for claim in claims} == {How.SUCCEEDED}
        assert most == 3


class TestStopping:
    def test_stopped_run_is_cancelled_and_cleans_up_before_it_is_reported(self, open_stand: OpenStand) -> None:
        cleaned: list[bool] = []
        stand = open_stand()

        async def clean_up(claim: Claim) -> None:
            try:
                await forever(claim)
            finally:
                await asyncio.sleep(0.01)
                cleaned.append(stand.runner.stopped(claim.run_id, claim.token) is StopReason.CANCELLED)

        claim = stand.begin(clean_up)
        stand.runner.stop(claim.run_id, claim.token, StopReason.CANCELLED)
        assert stand.how(claim) == How.CANCELLED
        assert cleaned == [True]

    def test_run_that_had_done_its_work_when_it_was_cancelled_has_succeeded(self, open_stand: OpenStand) -> None:
        async def finish(claim: Claim) -> None:
            try:
                await forever(claim)
            except asyncio.CancelledError:
                return

        stand = open_stand()
        cancelled, lost = stand.begin(finish), stand.begin(finish)
        stand.runner.stop(cancelled.run_id, cancelled.token, StopReason.CANCELLED)
        stand.runner.stop(lost.run_id, lost.token, StopReason.LOST)
        assert stand.how(cancelled) == How.SUCCEEDED
        assert stand.how(lost) == How.LOST, "whoever lost the right to run has nothing to report"

    def test_run_that_ignores_its_cancellation_is_reported_after_the_grace(self, open_stand: OpenStand) -> None:
        stand = open_stand(slots=1, cancel_grace_s=0.1)

        async def ignore(claim: Claim) -> None:
            while not stand.go.is_set():
                try:
                    await asyncio.sleep(0.005)
                except asyncio.CancelledError:
                    continue

        claim = stand.begin(ignore)
        stand.runner.stop(claim.run_id, claim.token, StopReason.CANCELLED)
        assert stand.how(claim) == How.CANCELLED
        (event,) = stand.told(What.RUN_ABANDONED)
        assert (event.job, event.run_id) == ("job", claim.run_id)
        assert stand.runner.room() == 0, "as many were given up as there are slots"
        stand.go.set()
        until(lambda: stand.runner.room() == 1, SOON_S, "room when it has ended")
        assert stand.how(stand.begin(nothing)) == How.SUCCEEDED
        assert len(stand.outcomes) == 2

    def test_run_that_cancels_itself_has_failed(self, open_stand: OpenStand) -> None:
        async def cancel_oneself(claim: Claim) -> None:
            raise asyncio.CancelledError

        stand = open_stand()
        claim = stand.begin(cancel_oneself)
        assert stand.how(claim) == How.FAILED
        assert "not by Fencepost" in (stand.outcomes[claim.run_id].error or "")

    def test_loss_outweighs_a_cancellation_that_is_under_way(self, open_stand: OpenStand) -> None:
        stand = open_stand(cancel_grace_s=SOON_S)
        heard, may_end = threading.Event(), asyncio.Event()

        async def linger(claim: Claim) -> None:
            try:
                await forever(claim)
            finally:
                heard.set()
                await may_end.wait()

        claim = stand.begin(linger)
        stand.runner.stop(claim.run_id, claim.token, StopReason.CANCELLED)
        assert heard.wait(SOON_S)
        stand.runner.lose()
        assert stand.loop is not None
        stand.loop.call_soon_threadsafe(may_end.set)
        assert stand.how(claim) == How.LOST

    def test_runs_end_when_trust_does_although_nobody_says_so(self, open_stand: OpenStand) -> None:
        stand = open_stand()
        stand.runner.lose()
        stand.runner.trust(RUNTIME.monotonic() + 0.3)
        claim = stand.begin(forever)
        assert stand.how(claim) == How.LOST
        assert stand.runner.room() == 0


class TestBlockedLoop:
    def test_job_that_blocks_the_loop_is_named(self, open_stand: OpenStand) -> None:
        stand = open_stand()
        stand.begin(forever, job="innocent")
        claim = stand.begin(stand.block, job="guilty")
        (event,) = until(lambda: stand.told(What.RUNNER_WARNING), SOON_S, "it is told")
        assert (event.job, event.run_id) == ("guilty", claim.run_id)
        assert "to_thread" in (event.reason or "")
        assert stand.runner.room() == 0
        stand.go.set()
        until(lambda: stand.runner.room() > 0, SOON_S, "room when it answers again")
        assert stand.how(claim) == How.SUCCEEDED

    def test_deadline_is_reported_although_the_loop_is_blocked(self, open_stand: OpenStand) -> None:
        stand = open_stand(timeouts={"guilty": 0.2}, cancel_grace_s=0.1)
        claim = stand.begin(stand.block, job="guilty")
        assert stand.how(claim) == How.TIMED_OUT
        assert stand.runner.running() == 0

    def test_what_waits_for_a_blocked_loop_is_handed_back(self, open_stand: OpenStand) -> None:
        stand = open_stand()
        stand.begin(stand.block)
        (waiting,) = stand.submit(nothing)
        assert stand.how(waiting) == How.RETURNED

    def test_close_does_not_wait_for_a_blocked_loop_for_ever(self, open_stand: OpenStand) -> None:
        stand = open_stand(cancel_grace_s=0.1)
        claim = stand.begin(stand.block)
        stand.runner.close(0.1)
        assert stand.how(claim) == How.INTERRUPTED
