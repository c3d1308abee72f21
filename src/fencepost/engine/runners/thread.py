"""Runs on threads of this process.

**Promises.** Those of `local.LocalRunner`. A thread cannot be killed: a run that is stopped is reported at once, its
next call through the run raises, its writes are refused, and another thread takes its place.

**Few threads for quick runs.** Threads that execute Python wait for each other, so waking one for work that takes
microseconds costs more than the work. As long as runs are quick, one thread does them all, a few microseconds each and
without a lock. When its present run turns out to take longer than a millisecond while others wait behind it, the
watcher wakes another thread; where runs are known to take long, every claim gets a thread at once.
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
from fencepost.engine.runners.local import LocalRunner, broken, quiet
from fencepost.engine.runners.outcome import Outcome
from fencepost.engine.runners.watcher import NEVER

Invoke = Callable[[Claim], Outcome]
"""Executes a claim and returns how it ended; it catches what the job raises."""

_DEFAULT_SLOTS = 10
_LONG_S = 0.001
_LOOK_EVERY_S = 0.002
_ALERT_S = 0.05
_MEASURE_EVERY = 64
_MEASURE_EVERY_S = 0.001


class _Seat:
    """One thread, and what it executes."""

    __slots__ = ("began_at", "claim", "task", "wake", "why")

    def __init__(self, runtime: Runtime) -> None:
        self.claim: Claim | None = None
        self.began_at = NEVER
        self.why: StopReason | None = None
        self.wake = runtime.event()
        self.task: Task | None = None


class ThreadRunner(LocalRunner[_Seat]):
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
        emit: Callable[[Event], None] = quiet,
    ) -> None:
        super().__init__("thread", timeouts=timeouts, slots=slots, runtime=runtime, fenced=fenced, emit=emit)
        self._invoke = invoke
        self._clock = runtime.monotonic
        self._seats: list[_Seat] = []
        self._idle: list[_Seat] = []
        self._threads_started = 0
        self._alert_until = -NEVER

    # -- on the threads ---------------------------------------------------------------------------------------------

    def _work(self, seat: _Seat) -> None:
        """Execute what is queued until there is nothing left to do here. The hot path: C methods and no locks."""
        book, queue, trust = self._book, self._queue, self._trust
        held, take, put, clock, invoke = book.held, queue.popleft, book.outcomes.append, self._clock, self._invoke
        done, since = 0, clock()
        now = since
        while True:
            if not queue or now >= trust.until:
                if not self._rest(seat, done, now - since):
                    return
                done, since = 0, clock()
                now = since
                continue
            try:
                claim = take()
            except IndexError:  # another thread was quicker
                continue
            key = (claim.run_id, claim.token)
            seat.began_at = now
            seat.claim = claim
            if key not in held:
                if self._has_been_replaced(seat, claim):
                    return
                continue
            try:
                outcome = Context().run(invoke, claim)
            except BaseException as error:  # noqa: BLE001 - SystemExit too: it ends a run, not the thread
                outcome = broken(claim, error)
            now = clock()
            done += 1
            if held.pop(key, None) is not None:
                put(outcome)
            elif self._has_been_replaced(seat, claim):
                return
            if done >= _MEASURE_EVERY or now - since > _MEASURE_EVERY_S:
                now = self._take_stock(seat, done, now - since)
                done, since = 0, now

    def _has_been_replaced(self, seat: _Seat, claim: Claim) -> bool:
        """Note the end of a run that was reported already; True if another thread has this one's place."""
        with self._lock:  # whoever reported it has finished with us
            self._trust.forget(claim.run_id, claim.token)
            self._abandoned.discard(seat)
            return seat.why is not None

    def _rest(self, seat: _Seat, done: int, took_s: float) -> bool:
        """Wait for something to do; False when nothing will come."""
        if done:
            self._ahead.measured(done, took_s)
        self._book.tell()
        # Whoever queued something before we were idle did not find us, whoever does so after will: so look again.
        self._wait(seat, lambda: not self._queue or self._trust.lost)
        return not self._is_closed

    def _take_stock(self, seat: _Seat, done: int, took_s: float) -> float:
        """Between two runs: tell what ended, and leave the rest to another thread if one is enough."""
        self._ahead.measured(done, took_s)
        self._book.tell()
        if self._ahead.is_quick and len(self._seats) - len(self._idle) > 1:
            self._watch_closely(self._clock())
            # Those that only wait for the interpreter look stuck, too, but not for so long.
            self._wait(seat, lambda: self._at_hand(HORIZON_S) > 0)
        return self._clock()

    def _wait(self, seat: _Seat, is_superfluous: Callable[[], bool]) -> None:
        seat.claim = None
        seat.wake.clear()
        self._idle.append(seat)
        if self._is_closing:
            self._empty.set()
        if is_superfluous() and not self._is_closed:
            seat.wake.wait()
        with suppress(ValueError):
            self._idle.remove(seat)

    # -- from outside -----------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        queued = len(self._queue)
        if not queued or not self._trust.is_trusted(now):
            return
        at_hand = self._at_hand(_LONG_S)
        for _ in range(self._ahead.hands(queued) - at_hand):
            if not self._wake_one():
                return
        if queued > at_hand and (self._idle or len(self._seats) < self._slots):
            self._watch_closely(now)

    def _watch_closely(self, now: float) -> None:
        """Claims wait behind few threads, and others are idle: notice soon if one of them gets stuck."""
        self._alert_until = now + _ALERT_S
        self._watcher.look_by(now + _LOOK_EVERY_S)

    def _at_hand(self, patience_s: float) -> int:
        """Return how many threads will take the next claim before long: those whose run is younger than that."""
        return len(self._seats) - len(self._idle) - self._stuck(patience_s)

    def _wake_one(self) -> bool:
        try:
            seat = self._idle.pop()
        except IndexError:
            return self._add_seat()
        seat.wake.set()
        return True

    def _add_seat(self) -> bool:
        with self._lock:
            if len(self._seats) >= self._slots or self._is_exhausted() or self._is_closed:
                return False
            seat, number = _Seat(self._runtime), self._threads_started + 1
            seat.task = self._runtime.spawn(f"fencepost-run-{number}", lambda: self._work(seat))
            self._threads_started = number
            self._seats.append(seat)
        return True

    def _places(self) -> list[_Seat]:
        return list(self._seats)

    def _interrupt(self, place: _Seat, claim: Claim, why: StopReason) -> None:
        if self._give_up(place, claim, why):
            self._seats.remove(place)

    def _tend(self, now: float) -> float:
        self._begin(now)
        return now + _LOOK_EVERY_S if now < self._alert_until else NEVER

    def _shut(self) -> None:
        for seat in self._places():
            seat.wake.set()
        for seat in self._places():
            if seat.task is not None:
                seat.task.join(1.0)


def make_runner(given: RunnerParts) -> ThreadRunner:
    """Make it for an application's functions."""

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
