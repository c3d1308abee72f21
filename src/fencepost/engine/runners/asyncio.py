"""The runner of ``async def`` jobs: each run is a task of an event loop that only this runner uses.

**Promises.** Those of `local.LocalRunner`. The loop has its own thread, so heartbeats and the exchange continue
whatever a job does to the loop. It starts with the first claim and ends with `close`. Each run is a task with its own
context. A task is cancelled if its run is stopped, exceeds its timeout, or outlives the node's trust without having
fenced effects. If it has not ended after the grace period, its outcome is reported anyway and its slot is reused.

**Not promised.** That a job which blocks the loop is stopped: a task can only be cancelled while it awaits something.
The watcher, on another thread, reports the job when the loop has not answered for a second. It also reports the
outcomes of runs that exceed their timeout, and returns claims that wait for the loop, so that other nodes take them.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import replace

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import Runtime, Task
from fencepost.engine.invoke import invoke_async
from fencepost.engine.logs.local import logged_async
from fencepost.engine.runners.kinds import RunnerParts
from fencepost.engine.runners.local import LocalRunner, ignore_event, outcome_of_uncaught
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.engine.runners.unfinished import Key
from fencepost.engine.runners.watcher import NEVER

InvokeAsync = Callable[[Claim], Awaitable[Outcome]]
"""Executes a claim and returns its outcome. The only exception it may raise is the cancellation of its task."""

_DEFAULT_SLOTS = 100  # tasks cost little, and mostly wait
_DEFAULT_GRACE_S = 5.0  # the same as that of worker processes
_BLOCKED_AFTER_S = 1.0  # long enough for a busy machine; a loop that is blocked longer delays every cancellation
_LEFTOVERS_WAIT_S = 1.0  # tasks that ignore their cancellation cannot be ended


class _TaskSlot:
    """One run, and the task that executes it."""

    __slots__ = ("began_at", "claim", "give_up_at", "task", "why")

    def __init__(self, claim: Claim, began_at: float) -> None:
        self.claim: Claim | None = claim
        self.began_at = began_at
        self.why: StopReason | None = None
        self.give_up_at = NEVER
        self.task: asyncio.Task[Outcome] | None = None


class AsyncioRunner(LocalRunner[_TaskSlot]):
    """Executes claims with `invoke`, at most `slots` at a time; `timeouts` are seconds by job.

    Runs of the jobs in `fenced` are suspended, not cancelled, when trust runs out.
    """

    def __init__(
        self,
        invoke: InvokeAsync,
        *,
        timeouts: Mapping[str, float | None],
        runtime: Runtime,
        slots: int = _DEFAULT_SLOTS,
        cancel_grace_s: float = _DEFAULT_GRACE_S,
        fenced: Collection[str] = (),
        emit: Callable[[Event], None] = ignore_event,
    ) -> None:
        super().__init__("task", timeouts=timeouts, slots=slots, runtime=runtime, fenced=fenced, emit=emit)
        self._invoke = invoke
        self._stop_grace_s = cancel_grace_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Task | None = None
        self._task_slots: dict[Key, _TaskSlot] = {}
        self._is_start_scheduled = False
        self._is_notify_scheduled = False
        self._pinged_at = NEVER
        self._is_blocked = False

    # -- on the loop ------------------------------------------------------------------------------------------------

    def _start_queued(self) -> None:
        self._is_start_scheduled = False
        now = self._runtime.monotonic()
        while self._queue and len(self._task_slots) < self._slots and self._trust.is_trusted(now):
            try:
                claim = self._queue.popleft()
            except IndexError:
                return
            self._start_task(claim, now)

    def _start_task(self, claim: Claim, now: float) -> None:
        key = (claim.run_id, claim.token)
        slot = self._task_slots[key] = _TaskSlot(claim, now)
        with self._lock:
            if key not in self._unfinished.held:  # stopped before it started
                del self._task_slots[key]
                return
            slot.task = asyncio.get_running_loop().create_task(self._execute(claim), context=Context())
        slot.task.add_done_callback(functools.partial(self._ended, slot, claim))

    async def _execute(self, claim: Claim) -> Outcome:
        try:
            return await self._invoke(claim)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a SystemExit that left the task would end the loop
            return outcome_of_uncaught(claim, error)

    def _cancel(self, slot: _TaskSlot) -> None:
        if slot.task is not None:
            slot.task.cancel(f"the run is to stop: {slot.why}")

    def _ended(self, slot: _TaskSlot, claim: Claim, task: asyncio.Task[Outcome]) -> None:
        self._ahead.measured(1, self._runtime.monotonic() - slot.began_at)
        with self._lock:
            self._task_slots.pop((claim.run_id, claim.token), None)
            self._abandoned.discard(slot)
            self._unfinished.settle(self._outcome(slot, claim, task))
            self._trust.forget(claim.run_id, claim.token)
        if self._queue:
            self._start_queued()
        if not self._is_notify_scheduled:  # one call for all runs that end in this iteration of the loop
            self._is_notify_scheduled = True
            asyncio.get_running_loop().call_soon(self._notify)

    def _notify(self) -> None:
        self._is_notify_scheduled = False
        self._empty.set()
        self._unfinished.notify()

    def _outcome(self, slot: _TaskSlot, claim: Claim, task: asyncio.Task[Outcome]) -> Outcome:
        """Return the outcome of a task. If it was asked to stop, it counts as stopped unless it succeeded anyway."""
        why, outcome = slot.why, None if task.cancelled() else task.result()
        if outcome is not None and (why is None or (outcome.how == How.SUCCEEDED and why is not StopReason.LOST)):
            return outcome
        if why is not None:
            return self._stopped(slot, claim, why)
        error = "the task was cancelled by the job itself or by a library that it uses, not by Fencepost"
        return Outcome(claim.run_id, claim.attempt, claim.token, How.FAILED, error_code="CancelledError", error=error)

    # -- from outside -----------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        if not self._queue or self._is_start_scheduled or not self._trust.is_trusted(now):
            return
        if self._loop is None:
            self._open()
        self._is_start_scheduled = True
        self._call(self._start_queued)

    def _open(self) -> None:
        with self._lock:
            if self._loop is None and not self._is_closed:
                self._loop = asyncio.new_event_loop()
                self._thread = self._runtime.spawn("fencepost-asyncio", functools.partial(self._run_loop, self._loop))

    def _call(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call)

    def _run_slots(self) -> list[_TaskSlot]:
        return list(self._task_slots.values())

    def _interrupt(self, slot: _TaskSlot, claim: Claim, why: StopReason) -> None:
        slot.why = why
        slot.give_up_at = self._runtime.monotonic() + self._stop_grace_s
        self._trust.stop(claim.run_id, claim.token, why)
        self._call(functools.partial(self._cancel, slot))
        self._watcher.look_by(slot.give_up_at)

    def _is_stuck(self) -> bool:
        return self._is_blocked

    def _check_slots(self, now: float) -> float:
        if not self._trust.is_trusted(now):
            for slot in self._run_slots():
                if slot.claim is not None and slot.claim.job not in self._fenced:
                    self._stop(slot.claim, StopReason.LOST)
        with self._lock:
            for slot in self._run_slots():
                if now >= slot.give_up_at:
                    self._abandon(slot)
        self._begin(now)
        return min(self._ping(now), self._next_at())

    def _abandon(self, slot: _TaskSlot) -> None:
        claim = slot.claim
        if claim is not None and slot.why is not None and self._give_up(slot, claim, slot.why):
            del self._task_slots[claim.run_id, claim.token]

    def _next_at(self) -> float:
        if self._trust.lost:
            return min((slot.give_up_at for slot in self._run_slots()), default=NEVER)
        return min((min(self._trust.until, slot.give_up_at) for slot in self._run_slots()), default=NEVER)

    # -- detecting a blocked loop -----------------------------------------------------------------------------------

    def _ping(self, now: float) -> float:
        """Schedule a callback on the loop, and report a blocked loop if it does not run. Return when to check next."""
        if self._pinged_at == NEVER:
            if self._task_slots or self._queue:
                self._pinged_at = now
                self._call(self._answer_ping)
        elif now - self._pinged_at >= _BLOCKED_AFTER_S and not self._is_blocked:
            self._is_blocked = True
            self._pending_events.append(self._blocked_event())
        return NEVER if self._is_blocked else self._pinged_at + _BLOCKED_AFTER_S

    def _answer_ping(self) -> None:
        self._pinged_at = NEVER
        self._is_blocked = False

    def _blocked_event(self) -> Event:
        task = None if self._loop is None else asyncio.current_task(self._loop)
        claim = next((slot.claim for slot in self._run_slots() if slot.task is task), None)
        if claim is None:
            claim = next((slot.claim for slot in list(self._abandoned) if slot.task is task), None)
        return Event(
            What.RUNNER_WARNING,
            job=None if claim is None else claim.job,
            run_id=None if claim is None else claim.run_id,
            reason=f"the event loop has not answered for {_BLOCKED_AFTER_S:g} s: a call blocks it, so no other async"
            " job makes progress. Await instead of making blocking calls, or pass them to asyncio.to_thread",
        )

    def _shut_down(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._call(self._loop.stop)
            self._thread.join(_LEFTOVERS_WAIT_S + 1.0)

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self._is_closed:
                self._run_until_stopped(loop)
            loop.run_until_complete(_end_leftovers())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def _run_until_stopped(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop, and continue it if a task that a job left behind raised an exception such as SystemExit."""
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - the tasks of other jobs need the loop
            self._report_error(error)


async def _end_leftovers() -> None:
    """Cancel the tasks that jobs left running and those that were given up, and wait for them for a limited time."""
    leftovers = asyncio.all_tasks() - {asyncio.current_task()}
    for task in leftovers:
        task.cancel()
    if leftovers:
        await asyncio.wait(leftovers, timeout=_LEFTOVERS_WAIT_S)


def make_runner(given: RunnerParts) -> AsyncioRunner:
    """Make the runner for an application's coroutine functions."""

    async def call(claim: Claim) -> Outcome:
        return await invoke_async(jobs[claim.job], claim, context)

    jobs = dict(given.jobs)
    runner = AsyncioRunner(
        logged_async(call, given.logs),
        timeouts=given.timeouts,
        runtime=given.context.runtime,
        fenced=given.fenced,
        emit=given.emit,
    )
    context = replace(given.context, standing=runner)
    return runner
