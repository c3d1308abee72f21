"""Runs of ``async def`` jobs, as tasks of an event loop that is ours alone.

**Promises.** Those of `local.LocalRunner`. The loop runs on a thread of its own, never on one that the user's code
shares with us, so whatever a job does to it, heartbeats and the exchange go on. It starts with the first claim and ends
with `close`. Every run is a task with a context of its own. A run that is stopped, outlives its timeout or, unless its
effects are fenced, outlives the node's trust is cancelled; if it has not ended within the grace, it is reported all the
same and its place is given to another.

**Not promised.** That a job which blocks the loop is stopped: nothing can, before it awaits something. The watcher, on
another thread, names the job after a second of silence; deadlines are reported from there; and what waits for the loop
is handed back, so that other nodes take it.
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
from fencepost.engine.runners.local import LocalRunner, broken, quiet
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.engine.runners.unfinished import Key
from fencepost.engine.runners.watcher import NEVER

InvokeAsync = Callable[[Claim], Awaitable[Outcome]]
"""Executes a claim and returns how it ended; lets only the cancellation of its task pass."""

_DEFAULT_SLOTS = 100
_DEFAULT_GRACE_S = 5.0
_LONGEST_SILENCE_S = 1.0
_LEFTOVERS_S = 1.0


class _Sitting:
    """One run, and the task that executes it."""

    __slots__ = ("began_at", "claim", "give_up_at", "task", "why")

    def __init__(self, claim: Claim, began_at: float) -> None:
        self.claim: Claim | None = claim
        self.began_at = began_at
        self.why: StopReason | None = None
        self.give_up_at = NEVER
        self.task: asyncio.Task[Outcome] | None = None


class AsyncioRunner(LocalRunner[_Sitting]):
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
        emit: Callable[[Event], None] = quiet,
    ) -> None:
        super().__init__("task", timeouts=timeouts, slots=slots, runtime=runtime, fenced=fenced, emit=emit)
        self._invoke = invoke
        self._stop_grace_s = cancel_grace_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Task | None = None
        self._sittings: dict[Key, _Sitting] = {}
        self._is_called = False
        self._is_telling = False
        self._asked_at = NEVER
        self._is_silent = False

    # -- on the loop ------------------------------------------------------------------------------------------------

    def _start_queued(self) -> None:
        self._is_called = False
        now = self._runtime.monotonic()
        while self._queue and len(self._sittings) < self._slots and self._trust.is_trusted(now):
            try:
                claim = self._queue.popleft()
            except IndexError:
                return
            self._seat(claim, now)

    def _seat(self, claim: Claim, now: float) -> None:
        key = (claim.run_id, claim.token)
        sitting = self._sittings[key] = _Sitting(claim, now)
        with self._lock:
            if key not in self._book.held:  # stopped before it began
                del self._sittings[key]
                return
            sitting.task = asyncio.get_running_loop().create_task(self._execute(claim), context=Context())
        sitting.task.add_done_callback(functools.partial(self._ended, sitting, claim))

    async def _execute(self, claim: Claim) -> Outcome:
        try:
            return await self._invoke(claim)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a SystemExit that left the task would end the loop
            return broken(claim, error)

    def _cancel(self, sitting: _Sitting) -> None:
        if sitting.task is not None:
            sitting.task.cancel(f"the run is to stop: {sitting.why}")

    def _ended(self, sitting: _Sitting, claim: Claim, task: asyncio.Task[Outcome]) -> None:
        self._ahead.measured(1, self._runtime.monotonic() - sitting.began_at)
        with self._lock:
            self._sittings.pop((claim.run_id, claim.token), None)
            self._abandoned.discard(sitting)
            self._book.settle(self._outcome(sitting, claim, task))
            self._trust.forget(claim.run_id, claim.token)
        if self._queue:
            self._start_queued()
        if not self._is_telling:  # once for all that end in this turn of the loop
            self._is_telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_telling = False
        self._empty.set()
        self._book.tell()

    def _outcome(self, sitting: _Sitting, claim: Claim, task: asyncio.Task[Outcome]) -> Outcome:
        """Say how a task ended. One that was told to stop was stopped, unless it had done its work all the same."""
        why, outcome = sitting.why, None if task.cancelled() else task.result()
        if outcome is not None and (why is None or (outcome.how == How.SUCCEEDED and why is not StopReason.LOST)):
            return outcome
        if why is not None:
            return self._stopped(sitting, claim, why)
        error = "its task was cancelled, and not by Fencepost: by the job itself, or by a library it uses"
        return Outcome(claim.run_id, claim.attempt, claim.token, How.FAILED, error_code="CancelledError", error=error)

    # -- from outside -----------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        if not self._queue or self._is_called or not self._trust.is_trusted(now):
            return
        if self._loop is None:
            self._open()
        self._is_called = True
        self._call(self._start_queued)

    def _open(self) -> None:
        with self._lock:
            if self._loop is None and not self._is_closed:
                self._loop = asyncio.new_event_loop()
                self._thread = self._runtime.spawn("fencepost-asyncio", functools.partial(self._run_loop, self._loop))

    def _call(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # closed: nothing runs there any more
                self._loop.call_soon_threadsafe(call)

    def _places(self) -> list[_Sitting]:
        return list(self._sittings.values())

    def _interrupt(self, place: _Sitting, claim: Claim, why: StopReason) -> None:
        place.why = why
        place.give_up_at = self._runtime.monotonic() + self._stop_grace_s
        self._trust.stop(claim.run_id, claim.token, why)
        self._call(functools.partial(self._cancel, place))
        self._watcher.look_by(place.give_up_at)

    def _is_stuck(self) -> bool:
        return self._is_silent

    def _tend(self, now: float) -> float:
        if not self._trust.is_trusted(now):
            for sitting in self._places():
                if sitting.claim is not None and sitting.claim.job not in self._fenced:
                    self._stop(sitting.claim, StopReason.LOST)
        with self._lock:
            for sitting in self._places():
                if now >= sitting.give_up_at:
                    self._abandon(sitting)
        self._begin(now)
        return min(self._listen(now), self._next_at())

    def _abandon(self, sitting: _Sitting) -> None:
        claim = sitting.claim
        if claim is not None and sitting.why is not None and self._give_up(sitting, claim, sitting.why):
            del self._sittings[claim.run_id, claim.token]

    def _next_at(self) -> float:
        if self._trust.lost:
            return min((sitting.give_up_at for sitting in self._places()), default=NEVER)
        return min((min(self._trust.until, sitting.give_up_at) for sitting in self._places()), default=NEVER)

    # -- is the loop alive? -----------------------------------------------------------------------------------------

    def _listen(self, now: float) -> float:
        """Ask the loop for a sign of life, and tell if none comes. Returns when to listen again."""
        if self._asked_at == NEVER:
            if self._sittings or self._queue:
                self._asked_at = now
                self._call(self._answer)
        elif now - self._asked_at >= _LONGEST_SILENCE_S and not self._is_silent:
            self._is_silent = True
            self._news.append(self._silence())
        return NEVER if self._is_silent else self._asked_at + _LONGEST_SILENCE_S

    def _answer(self) -> None:
        self._asked_at = NEVER
        self._is_silent = False

    def _silence(self) -> Event:
        task = None if self._loop is None else asyncio.current_task(self._loop)
        claim = next((sitting.claim for sitting in self._places() if sitting.task is task), None)
        if claim is None:
            claim = next((sitting.claim for sitting in list(self._abandoned) if sitting.task is task), None)
        return Event(
            What.RUNNER_WARNING,
            job=None if claim is None else claim.job,
            run_id=None if claim is None else claim.run_id,
            reason=f"the event loop has not answered for {_LONGEST_SILENCE_S:g} s: something blocks it, so no other"
            " async job goes on. Await instead of calling what blocks, or hand it to asyncio.to_thread",
        )

    def _shut(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._call(self._loop.stop)
            self._thread.join(_LEFTOVERS_S + 1.0)

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
        """Run the loop, and go on with it if a task that a job left behind raised SystemExit or the like."""
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - the other jobs' tasks need their loop
            self._report_trouble(error)


async def _end_leftovers() -> None:
    """Cancel what jobs left running, and what was given up; wait for it, but not for long."""
    leftovers = asyncio.all_tasks() - {asyncio.current_task()}
    for task in leftovers:
        task.cancel()
    if leftovers:
        await asyncio.wait(leftovers, timeout=_LEFTOVERS_S)


def make_runner(given: RunnerParts) -> AsyncioRunner:
    """Make it for an application's coroutine functions."""

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
