"""The common part of the runners inside this process: unfinished claims, the queue, the watcher, stopping and closing.

**Promises.** Those of `runner.Runner`, and of `engine.context.RunStanding`: the runner says whether a run may continue.
No claim starts before `trust` is called, or while the trust has ended. Queued claims start when trust is extended.

**Starting and stopping.** A thread or task first sets `slot.claim`, then checks that the claim is still in
`_unfinished.held`. A caller that stops a claim that no slot shows removes it from `held`. So a run that was stopped
cannot start unseen.

**Abandoned runs.** A thread cannot be killed, and a task may ignore its cancellation. The outcome of such a run is
reported, its slot is reused, and its later result is dropped. When there are as many abandoned runs as slots, the
runner logs a warning and takes no more claims until one of them ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import Runtime
from fencepost.engine.runners import verdicts
from fencepost.engine.runners.claim_ahead import HORIZON_S, ClaimAhead
from fencepost.engine.runners.deadlines import JobTimeouts
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.engine.runners.unfinished import Key, Unfinished
from fencepost.engine.runners.watcher import NEVER, Watcher
from fencepost.engine.trust import NodeTrust

# A claim that has waited this long while no slot became free is returned, so that another node can start it.
_LONGEST_WAIT_S = 1.0
_CHECK_QUEUE_EVERY_S = 0.25  # how late a claim may notice that its slot became free without a signal
_SLACK_S = 1.0  # for the threads to notice that they are to end


class RunSlot(Protocol):
    """A thread or task that executes a run. `claim` is read before `began_at`, and written after it."""

    claim: Claim | None
    began_at: float
    why: StopReason | None  # why the run was asked to stop


P = TypeVar("P", bound=RunSlot)


def ignore_event(event: Event) -> None:
    """Drop the event."""


class LocalRunner(ABC, Generic[P]):
    """A runner without the part that executes runs."""

    _stop_grace_s = 0.0  # how long a stopped run has to end before it is given up

    def __init__(
        self,
        name: str,
        *,
        timeouts: Mapping[str, float | None],
        slots: int,
        runtime: Runtime,
        fenced: Collection[str] = (),
        emit: Callable[[Event], None] = ignore_event,
    ) -> None:
        self._name = name
        self._fenced = frozenset(fenced)
        self._suspended: set[Key] = set()
        self._slots = slots
        self._runtime = runtime
        self._emit = emit
        self._lock = runtime.lock()
        self._empty = runtime.event()
        self._unfinished = Unfinished()
        self._queue: deque[Claim] = deque()
        self._ahead = ClaimAhead(slots)
        self._deadlines = JobTimeouts(timeouts)
        self._trust = NodeTrust(runtime.monotonic)
        self._abandoned: set[P] = set()
        self._pending_events: deque[Event] = deque()
        self._has_been_exhausted = False
        self._submitted_at = -NEVER
        self._no_start_until = -NEVER  # set when a start failed for lack of threads, memory or files
        self._is_closing = False
        self._is_closed = False
        self._watcher = Watcher(f"fencepost-{name}-watcher", self._check, runtime=runtime, on_error=self._report_error)

    # -- the contract of a runner ----------------------------------------------------------------------------------

    def start(self, on_outcome: Callable[[], None]) -> None:
        """Begin. Threads are started with the first claim."""
        self._unfinished.start(on_outcome)

    def room(self) -> int:
        """Return how many more claims the runner would take now."""
        if self._is_closing or self._is_exhausted() or self._is_stuck():
            return 0
        now = self._runtime.monotonic()
        if now < self._no_start_until or not self._trust.is_trusted(now):
            return 0
        ahead = self._ahead.beside(self._stuck(HORIZON_S)) if self._ahead.ahead else 0
        return max(0, self._slots + ahead - len(self._unfinished.held))

    def submit(self, claims: Sequence[Claim]) -> None:
        """Take these claims."""
        if not claims:
            return
        self._unfinished.enter(claims)
        self._queue.extend(claims)
        self._submitted_at = self._runtime.monotonic()
        if not self._is_closing:
            self._start_or_return()
        if self._is_closing:  # again: `close` may have been called in the meantime
            self.take_back()

    def collect(self) -> list[Outcome]:
        """Return the outcomes since the last call."""
        return self._unfinished.collect()

    def running(self) -> int:
        """Return how many claims the runner has, started or not."""
        return len(self._unfinished.held)

    def stop(self, run_id: int, token: int, why: StopReason) -> None:
        """Stop one run."""
        claim = self._unfinished.held.get((run_id, token))
        if claim is not None:
            self._stop(claim, why)
            self._unfinished.notify()

    def trust(self, until: float) -> None:
        """Extend the trust, and start queued claims."""
        self._trust.extend(until)
        if self._queue:
            self._start_or_return()

    def lose(self) -> None:
        """Stop all runs now."""
        self._trust.lose()
        self._suspended.clear()
        self._stop_all(StopReason.LOST)

    def suspend(self) -> list[Claim]:
        """Suspend the fenced runs that have started, and stop all other runs now."""
        self._trust.lose()
        held = list(self._unfinished.held.values())
        self._suspended.intersection_update(map(_key, held))  # the others have ended
        kept = [claim for claim in held if self._try_suspend(claim)]
        for claim in held:
            if _key(claim) not in self._suspended:
                self._stop(claim, StopReason.LOST)
        self._unfinished.notify()
        return kept

    def resume(self, runs: Collection[Key]) -> None:
        """Let these runs continue."""
        self._suspended.difference_update(runs)

    def take_back(self) -> None:
        """Return the claims that have not started. The thread that removes a claim from the queue handles it."""
        while self._queue:
            try:
                claim = self._queue.popleft()
            except IndexError:
                break
            self._unfinished.settle(verdicts.returned(claim))
        self._unfinished.notify()

    def close(self, grace_s: float) -> None:
        """Take no more claims, return those that have not started, and wait for the rest, then stop it."""
        self._is_closing = True
        self.take_back()
        self._wait_until_empty(grace_s)
        self._stop_all(StopReason.SHUTDOWN)
        self._wait_until_empty(self._stop_grace_s + _SLACK_S)
        self._is_closed = True
        self._watcher.close()
        self._shut_down()
        self._unfinished.notify()

    # -- whether a run may continue --------------------------------------------------------------------------------

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        """Return why this run has to stop, or None while it may continue."""
        claim = self._unfinished.held.get((run_id, token))  # first: the reason is set before the claim is removed
        why = self._trust.stop_reason(run_id, token)
        if why is not None or claim is None:
            return why or StopReason.LOST
        return None if claim.job in self._fenced or not self._trust.lost else StopReason.LOST

    def suspended(self, run_id: int, token: int) -> bool:
        """Whether it is unknown if this run is still ours, and it need not stop."""
        if (run_id, token) in self._suspended:
            return True
        claim = self._unfinished.held.get((run_id, token))
        return claim is not None and claim.job in self._fenced and self._trust.lost

    # -- what differs ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, now: float) -> None:
        """Make sure that queued claims are started. Called from any thread."""

    @abstractmethod
    def _run_slots(self) -> list[P]:
        """Return the slots in which runs execute now, and perhaps some idle ones."""

    @abstractmethod
    def _interrupt(self, slot: P, claim: Claim, why: StopReason) -> None:
        """Stop the run in this slot, by `_give_up` if there is no other way. Called with the lock held."""

    @abstractmethod
    def _check_slots(self, now: float) -> float:
        """Do the periodic checks of this kind of runner, and return when to check again."""

    @abstractmethod
    def _shut_down(self) -> None:
        """End the threads or the loop. The only runs left are those that were given up."""

    def _is_stuck(self) -> bool:
        """Whether no claim could start now, for another reason than that all slots are in use."""
        return False

    def _start_or_return(self) -> None:
        """Start the queued claims. If no thread can be started for them, return them, so that other nodes take them."""
        now = self._runtime.monotonic()
        try:
            if self._queue:
                self._begin(now)
                self._watcher.look_by(now + self._deadlines.check_every_s)
        except Exception as error:  # noqa: BLE001 - out of threads, memory or files: report it and continue
            self._no_start_until = now + _LONGEST_WAIT_S
            self._report_error(error)
            self.take_back()

    # -- stopping --------------------------------------------------------------------------------------------------

    def _try_suspend(self, claim: Claim) -> bool:
        """Suspend a run if it has started, its effects are fenced, and it was not asked to stop."""
        if claim.job not in self._fenced:
            return False
        with self._lock:
            is_kept = any(slot.claim is claim and slot.why is None for slot in self._run_slots())
            if is_kept:
                self._suspended.add(_key(claim))
        return is_kept

    def _stop_all(self, why: StopReason) -> None:
        for claim in list(self._unfinished.held.values()):
            self._stop(claim, why)
        self._unfinished.notify()

    def _stop(self, claim: Claim, why: StopReason) -> None:
        with self._lock:
            if _key(claim) in self._unfinished.held:
                self._stop_held(claim, why)
        self._report()
        self._start_or_return()

    def _stop_held(self, claim: Claim, why: StopReason) -> None:
        slot = next((slot for slot in self._run_slots() if slot.claim is claim), None)
        if slot is None:  # not started; removing it from `held` keeps it from starting
            self._unfinished.settle(verdicts.stopped_unstarted(claim, why))
        elif slot.why is None:
            self._interrupt(slot, claim, why)
        elif why is StopReason.LOST:  # whatever the first reason was, the outcome must no longer reach the ledger
            slot.why = why

    def _stopped(self, slot: P, claim: Claim, why: StopReason) -> Outcome:
        took_us = round((self._runtime.monotonic() - slot.began_at) * 1_000_000)
        return verdicts.stopped(claim, why, took_us=took_us, timeout_s=self._deadlines.of(claim.job))

    def _give_up(self, slot: P, claim: Claim, why: StopReason) -> bool:
        """Report the outcome of a run that still executes. Return False if it has just ended. The lock is held."""
        self._trust.stop(claim.run_id, claim.token, why)
        if not self._unfinished.settle(self._stopped(slot, claim, why)):
            self._trust.forget(claim.run_id, claim.token)
            return False
        slot.why = why
        self._abandoned.add(slot)
        self._pending_events.append(
            Event(
                What.RUN_ABANDONED,
                job=claim.job,
                run_id=claim.run_id,
                token=claim.token,
                attempt=claim.attempt,
                reason=f"stopped ({why}), but its {self._name} continues until the job next calls a method of its run"
                f"{_freed_key_note(claim)}",
            )
        )
        return True

    def _is_exhausted(self) -> bool:
        return len(self._abandoned) >= self._slots

    def _report(self) -> None:
        """Emit the pending events. Called without the lock."""
        was_exhausted, self._has_been_exhausted = self._has_been_exhausted, self._is_exhausted()
        if self._has_been_exhausted and not was_exhausted:
            self._pending_events.append(self._exhaustion())
        with suppress(IndexError):  # another thread may emit at the same time
            while True:
                self._emit(self._pending_events.popleft())

    def _exhaustion(self) -> Event:
        jobs = sorted({slot.claim.job for slot in list(self._abandoned) if slot.claim is not None})
        return Event(
            What.RUNNER_WARNING,
            job=", ".join(jobs) or None,
            reason=f"{self._slots} stopped runs still execute, as many as there are slots; no more runs are taken until"
            " one of them ends. Call run.check() more often in these jobs, set a timeout on what they wait for, or run"
            " them in worker processes, which can be killed",
        )

    # -- periodic checks -------------------------------------------------------------------------------------------

    def _check(self, now: float) -> float:
        executing = [(claim, slot.began_at) for slot in self._run_slots() if (claim := slot.claim) is not None]
        overdue, check_at = self._deadlines.sort(executing, now)
        for claim in overdue:
            self._stop(claim, StopReason.TIMED_OUT)
        self._return_waiting(now)
        if self._queue:
            check_at = min(check_at, now + _CHECK_QUEUE_EVERY_S)
        check_at = min(self._check_slots(now), check_at if self._is_busy(now) else NEVER)
        self._report()
        self._unfinished.notify()
        self._empty.set()
        return check_at

    def _is_busy(self, now: float) -> bool:
        """Whether there are claims, or were a moment ago. So the watcher need not be woken for every claim."""
        return bool(self._unfinished.held) or now < self._submitted_at + self._deadlines.check_every_s

    def _return_waiting(self, now: float) -> None:
        if self._queue and now > self._submitted_at + _LONGEST_WAIT_S and self._is_full():
            self.take_back()

    def _is_full(self) -> bool:
        """Whether no slot has become free for a while."""
        return self._is_exhausted() or self._is_stuck() or self._stuck(_LONGEST_WAIT_S) >= self._slots

    def _stuck(self, longer_than_s: float) -> int:
        """Return how many runs have been executing for longer than that."""
        began_by = self._runtime.monotonic() - longer_than_s
        return sum(slot.claim is not None and slot.began_at < began_by for slot in self._run_slots())

    def _wait_until_empty(self, timeout_s: float) -> None:
        give_up_at = self._runtime.monotonic() + timeout_s
        while True:
            self._empty.clear()
            left_s = give_up_at - self._runtime.monotonic()
            if not self._unfinished.held or left_s <= 0:
                return
            self._empty.wait(min(left_s, 1.0))

    def _report_error(self, error: BaseException) -> None:
        self._emit(Event(What.RUNNER_WARNING, reason=f"the {self._name} runner continues after an error: {error!r}"))


def _key(claim: Claim) -> Key:
    return claim.run_id, claim.token


def outcome_of_uncaught(claim: Claim, error: BaseException) -> Outcome:
    """Return the outcome of a run that raised an error which was not caught."""
    text = f"{type(error).__name__}: {error}"
    return Outcome(
        claim.run_id, claim.attempt, claim.token, How.FAILED, error_code=type(error).__name__, error=text[:2000]
    )


def _freed_key_note(claim: Claim) -> str:
    """Return a warning that the run's exclusive key is free once its outcome is reported."""
    if claim.exclusive_key is None:
        return ""
    return f"; its key {claim.exclusive_key!r} is free, so the next run may start while this one still executes"
