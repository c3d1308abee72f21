"""The runner of functions on threads of this process.

**Promises.** Those of `local.LocalRunner`. A thread cannot be killed. When a run is stopped, its outcome is reported at
once, the next call that it makes through the run raises, its writes are refused, and another thread takes its slot.

**Few threads for quick runs.** Threads that execute Python wait for each other, so waking a thread for work that takes
microseconds costs more than the work. While runs are quick, one thread executes them all, with a few microseconds of
overhead each and without a lock. If its current run takes longer than a millisecond while claims wait, the watcher
wakes another thread. If runs are known to take long, every claim gets a thread at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import replace

from fencepost.core.events import Event
from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import Runtime, Task
from fencepost.engine.invoke import invoke
from fencepost.engine.logs.local import logged
from fencepost.engine.runners.claim_ahead import HORIZON_S
from fencepost.engine.runners.kinds import RunnerParts
from fencepost.engine.runners.local import LocalRunner, ignore_event, outcome_of_uncaught
from fencepost.engine.runners.outcome import Outcome
from fencepost.engine.runners.watcher import NEVER

Invoke = Callable[[Claim], Outcome]
"""Executes a claim and returns its outcome. It catches what the job raises."""

_DEFAULT_SLOTS = 10  # jobs on threads mostly wait for databases and networks
_LONG_S = 0.001  # a run that takes longer is worth another thread
_CHECK_EVERY_S = 0.002  # how late another thread is woken for work that waits behind a long run
_CLOSE_WATCH_S = 0.05  # after that long without new work nothing waits
_MEASURE_EVERY = 64  # reading the clock for each of many no-ops would cost more than they do
_MEASURE_EVERY_S = 0.001  # the resolution that claiming ahead needs


class _ThreadSlot:
    """One thread, and the claim that it executes."""

    __slots__ = ("began_at", "claim", "task", "wake", "why")

    def __init__(self, runtime: Runtime) -> None:
        self.claim: Claim | None = None
        self.began_at = NEVER
        self.why: StopReason | None = None
        self.wake = runtime.event()
        self.task: Task | None = None


class ThreadRunner(LocalRunner[_ThreadSlot]):
    """Executes claims with `invoke` on at most `slots` threads; `timeouts` are seconds by job.

    Runs of the jobs in `fenced` are suspended, not stopped, when trust runs out.
    """

    def __init__(
        self,
        invoke: Invoke,
        *,
        timeouts: Mapping[str, float | None],
        runtime: Runtime,
        slots: int = _DEFAULT_SLOTS,
        fenced: Collection[str] = (),
        emit: Callable[[Event], None] = ignore_event,
    ) -> None:
        super().__init__("thread", timeouts=timeouts, slots=slots, runtime=runtime, fenced=fenced, emit=emit)
        self._invoke = invoke
        self._clock = runtime.monotonic
        self._thread_slots: list[_ThreadSlot] = []
        self._idle: list[_ThreadSlot] = []
        self._threads_started = 0
        self._watch_closely_until = -NEVER

    # -- on the threads ---------------------------------------------------------------------------------------------

    def _work(self, slot: _ThreadSlot) -> None:
        """Execute queued claims until this thread is no longer needed. The hot path: only C methods, and no locks."""
        unfinished, queue, trust = self._unfinished, self._queue, self._trust
        held, take, put, clock, invoke = (
            unfinished.held,
            queue.popleft,
            unfinished.outcomes.append,
            self._clock,
            self._invoke,
        )
        done, since = 0, clock()
        now = since
        while True:
            if not queue or now >= trust.until:
                if not self._wait_for_work(slot, done, now - since):
                    return
                done, since = 0, clock()
                now = since
                continue
            try:
                claim = take()
            except IndexError:  # another thread took the last claim
                continue
            key = (claim.run_id, claim.token)
            slot.began_at = now
            slot.claim = claim
            if key not in held:
                if self._has_been_replaced(slot, claim):
                    return
                continue
            try:
                outcome = Context().run(invoke, claim)
            except BaseException as error:  # noqa: BLE001 - even SystemExit ends the run and not the thread
                outcome = outcome_of_uncaught(claim, error)
            now = clock()
            done += 1
            if held.pop(key, None) is not None:
                put(outcome)
            elif self._has_been_replaced(slot, claim):
                return
            if done >= _MEASURE_EVERY or now - since > _MEASURE_EVERY_S:
                now = self._between_runs(slot, done, now - since)
                done, since = 0, now

    def _has_been_replaced(self, slot: _ThreadSlot, claim: Claim) -> bool:
        """Clean up after a run whose outcome was already reported. Return True if another thread replaces this one."""
        with self._lock:  # wait until the thread that reported it is done with this slot
            self._trust.forget(claim.run_id, claim.token)
            self._abandoned.discard(slot)
            return slot.why is not None

    def _wait_for_work(self, slot: _ThreadSlot, done: int, took_s: float) -> bool:
        """Wait for a claim. Return False when the runner is closed."""
        if done:
            self._ahead.measured(done, took_s)
        self._unfinished.notify()
        # A caller that queued a claim before this thread was in `_idle` did not wake it: `_wait` checks it again.
        self._wait(slot, lambda: not self._queue or self._trust.lost)
        return not self._is_closed

    def _between_runs(self, slot: _ThreadSlot, done: int, took_s: float) -> float:
        """Between two runs, report outcomes, and leave the queue to another thread if one thread is enough."""
        self._ahead.measured(done, took_s)
        self._unfinished.notify()
        if self._ahead.is_quick and len(self._thread_slots) - len(self._idle) > 1:
            self._watch_closely(self._clock())
            # Threads that only wait for the interpreter lock look stuck too, but for less than the horizon.
            self._wait(slot, lambda: self._available(HORIZON_S) > 0)
        return self._clock()

    def _wait(self, slot: _ThreadSlot, may_wait: Callable[[], bool]) -> None:
        slot.claim = None
        slot.wake.clear()
        self._idle.append(slot)
        if self._is_closing:
            self._empty.set()
        if may_wait() and not self._is_closed:
            slot.wake.wait()
        with suppress(ValueError):
            self._idle.remove(slot)

    # -- from outside -----------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        queued = len(self._queue)
        if not queued or not self._trust.is_trusted(now):
            return
        available = self._available(_LONG_S)
        for _ in range(self._ahead.threads_for(queued) - available):
            if not self._wake_one():
                return
        if queued > available and (self._idle or len(self._thread_slots) < self._slots):
            self._watch_closely(now)

    def _watch_closely(self, now: float) -> None:
        """Check often for a while, because claims wait behind few threads: if one of these is stuck, wake another."""
        self._watch_closely_until = now + _CLOSE_WATCH_S
        self._watcher.look_by(now + _CHECK_EVERY_S)

    def _available(self, within_s: float) -> int:
        """Return how many threads will soon take the next claim: those whose run began less than `within_s` ago."""
        return len(self._thread_slots) - len(self._idle) - self._stuck(within_s)

    def _wake_one(self) -> bool:
        try:
            slot = self._idle.pop()
        except IndexError:
            return self._add_thread()
        slot.wake.set()
        return True

    def _add_thread(self) -> bool:
        with self._lock:
            if len(self._thread_slots) >= self._slots or self._is_exhausted() or self._is_closed:
                return False
            slot, number = _ThreadSlot(self._runtime), self._threads_started + 1
            slot.task = self._runtime.spawn(f"fencepost-run-{number}", lambda: self._work(slot))
            self._threads_started = number
            self._thread_slots.append(slot)
        return True

    def _run_slots(self) -> list[_ThreadSlot]:
        return list(self._thread_slots)

    def _interrupt(self, slot: _ThreadSlot, claim: Claim, why: StopReason) -> None:
        if self._give_up(slot, claim, why):
            self._thread_slots.remove(slot)

    def _check_slots(self, now: float) -> float:
        self._begin(now)
        return now + _CHECK_EVERY_S if now < self._watch_closely_until else NEVER

    def _shut_down(self) -> None:
        for slot in self._run_slots():
            slot.wake.set()
        for slot in self._run_slots():
            if slot.task is not None:
                slot.task.join(1.0)


def make_runner(given: RunnerParts) -> ThreadRunner:
    """Make the runner for an application's functions."""

    def call(claim: Claim) -> Outcome:
        return invoke(jobs[claim.job], claim, context)

    jobs = dict(given.jobs)
    runner = ThreadRunner(
        logged(call, given.logs),
        timeouts=given.timeouts,
        runtime=given.context.runtime,
        slots=given.slots,
        fenced=given.fenced,
        emit=given.emit,
    )
    context = replace(given.context, standing=runner)
    return runner
