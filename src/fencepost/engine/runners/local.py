"""What the runners inside this process share: accounts, the queue, the watcher, stopping and closing.

**Promises.** Those of `runner.Runner`, and of `engine.context.Standing`: the runner says whether a run may go on.
Nothing starts before `trust` was called, or while trust has run out; it waits, and starts when trust is extended.

**Who starts a claim.** Whoever executes shows which claim it has, and then looks whether the book still holds it;
whoever stops one that nobody shows takes it out of the book. So a run cannot start unseen after it was stopped.

**What is given up.** A thread cannot be killed, and a task may ignore that it was cancelled. Such a run is reported,
its place is given to another, and whatever it returns later is dropped. Once there are as many of these as slots, the
runner takes nothing more until one has ended, and says so.
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

# A claim that has waited this long while no slot came free is better off on another node.
_LONGEST_WAIT_S = 1.0
_LOOK_AT_QUEUE_S = 0.25
_SLACK_S = 1.0


class RunSlot(Protocol):
    """Where a run executes: a thread, or a task. `claim` is read before `began_at`, and written after it."""

    claim: Claim | None
    began_at: float
    why: StopReason | None  # it was told to stop


P = TypeVar("P", bound=RunSlot)


def quiet(event: Event) -> None:
    """Tell nobody."""


class LocalRunner(ABC, Generic[P]):
    """The part of a runner that does not care what executes the runs."""

    _stop_grace_s = 0.0  # how long what was stopped has to end before it is given up

    def __init__(
        self,
        name: str,
        *,
        timeouts: Mapping[str, float | None],
        slots: int,
        runtime: Runtime,
        fenced: Collection[str] = (),
        emit: Callable[[Event], None] = quiet,
    ) -> None:
        self._name = name
        self._fenced = frozenset(fenced)
        self._suspended: set[Key] = set()
        self._slots = slots
        self._runtime = runtime
        self._emit = emit
        self._lock = runtime.lock()
        self._empty = runtime.event()
        self._book = Unfinished()
        self._queue: deque[Claim] = deque()
        self._ahead = ClaimAhead(slots)
        self._deadlines = JobTimeouts(timeouts)
        self._trust = NodeTrust(runtime.monotonic)
        self._abandoned: set[P] = set()
        self._news: deque[Event] = deque()
        self._has_been_exhausted = False
        self._submitted_at = -NEVER
        self._shy_until = -NEVER  # it lacked the means to start something a moment ago
        self._is_closing = False
        self._is_closed = False
        self._watcher = Watcher(
            f"fencepost-{name}-watcher", self._look, runtime=runtime, on_trouble=self._report_trouble
        )

    # -- the contract of a runner ----------------------------------------------------------------------------------

    def start(self, on_outcome: Callable[[], None]) -> None:
        """Begin; threads start with the first claim."""
        self._book.start(on_outcome)

    def room(self) -> int:
        """Return how many more claims it would take now."""
        if self._is_closing or self._is_exhausted() or self._is_stuck():
            return 0
        now = self._runtime.monotonic()
        if now < self._shy_until or not self._trust.is_trusted(now):
            return 0
        ahead = self._ahead.beside(self._stuck(HORIZON_S)) if self._ahead.ahead else 0
        return max(0, self._slots + ahead - len(self._book.held))

    def submit(self, claims: Sequence[Claim]) -> None:
        """Take these."""
        if not claims:
            return
        self._book.enter(claims)
        self._queue.extend(claims)
        self._submitted_at = self._runtime.monotonic()
        if not self._is_closing:
            self._start_or_return()
        if self._is_closing:  # perhaps only now
            self.take_back()

    def collect(self) -> list[Outcome]:
        """Return what ended since the last call."""
        return self._book.collect()

    def running(self) -> int:
        """Return how many claims it has, started or not."""
        return len(self._book.held)

    def stop(self, run_id: int, token: int, why: StopReason) -> None:
        """Stop one run."""
        claim = self._book.held.get((run_id, token))
        if claim is not None:
            self._stop(claim, why)
            self._book.tell()

    def trust(self, until: float) -> None:
        """Extend what the node may trust."""
        self._trust.extend(until)
        if self._queue:
            self._start_or_return()

    def lose(self) -> None:
        """Stop everything now."""
        self._trust.lose()
        self._suspended.clear()
        self._stop_all(StopReason.LOST)

    def suspend(self) -> list[Claim]:
        """Keep up the fenced runs that have begun, and stop all else now."""
        self._trust.lose()
        held = list(self._book.held.values())
        self._suspended.intersection_update(map(_key, held))  # the others have ended
        kept = [claim for claim in held if self._keeps(claim)]
        for claim in held:
            if _key(claim) not in self._suspended:
                self._stop(claim, StopReason.LOST)
        self._book.tell()
        return kept

    def resume(self, runs: Collection[Key]) -> None:
        """Let these go on."""
        self._suspended.difference_update(runs)

    def take_back(self) -> None:
        """Hand back what has not started. Whoever takes a claim out of the queue decides what becomes of it."""
        while self._queue:
            try:
                claim = self._queue.popleft()
            except IndexError:
                break
            self._book.settle(verdicts.returned(claim))
        self._book.tell()

    def close(self, grace_s: float) -> None:
        """Take nothing more, and let the rest end."""
        self._is_closing = True
        self.take_back()
        self._wait_until_empty(grace_s)
        self._stop_all(StopReason.SHUTDOWN)
        self._wait_until_empty(self._stop_grace_s + _SLACK_S)
        self._is_closed = True
        self._watcher.close()
        self._shut()
        self._book.tell()

    # -- its standing ----------------------------------------------------------------------------------------------

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        """Return why this run has to stop, or None while it may go on."""
        claim = self._book.held.get((run_id, token))  # first: why it was stopped is noted before it is taken out
        why = self._trust.told(run_id, token)
        if why is not None or claim is None:
            return why or StopReason.LOST
        return None if claim.job in self._fenced or not self._trust.lost else StopReason.LOST

    def suspended(self, run_id: int, token: int) -> bool:
        """Whether nobody knows if this run may go on, and it need not stop."""
        if (run_id, token) in self._suspended:
            return True
        claim = self._book.held.get((run_id, token))
        return claim is not None and claim.job in self._fenced and self._trust.lost

    # -- what differs ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, now: float) -> None:
        """See to it that what is queued gets started. Called from any thread."""

    @abstractmethod
    def _places(self) -> list[P]:
        """Return where runs execute now, and perhaps some where none does."""

    @abstractmethod
    def _interrupt(self, place: P, claim: Claim, why: StopReason) -> None:
        """Stop what executes there, by `_give_up` if there is no other way. Called under the lock."""

    @abstractmethod
    def _tend(self, now: float) -> float:
        """Do what else is due, and return when to look again."""

    @abstractmethod
    def _shut(self) -> None:
        """End what executes runs; there are none left but those that were given up."""

    def _is_stuck(self) -> bool:
        """Whether nothing could start now for another reason than that all slots are taken."""
        return False

    def _start_or_return(self) -> None:
        """Start what is queued; where no thread can be had for it, others may have more luck."""
        now = self._runtime.monotonic()
        try:
            if self._queue:
                self._begin(now)
                self._watcher.look_by(now + self._deadlines.looks_every_s)
        except Exception as error:  # noqa: BLE001 - out of threads, memory or files: tell it, and stay alive
            self._shy_until = now + _LONGEST_WAIT_S
            self._report_trouble(error)
            self.take_back()

    # -- stopping --------------------------------------------------------------------------------------------------

    def _keeps(self, claim: Claim) -> bool:
        """Suspend a run, if it has begun, its effects are fenced, and nobody has told it to stop."""
        if claim.job not in self._fenced:
            return False
        with self._lock:
            is_kept = any(place.claim is claim and place.why is None for place in self._places())
            if is_kept:
                self._suspended.add(_key(claim))
        return is_kept

    def _stop_all(self, why: StopReason) -> None:
        for claim in list(self._book.held.values()):
            self._stop(claim, why)
        self._book.tell()

    def _stop(self, claim: Claim, why: StopReason) -> None:
        with self._lock:
            if _key(claim) in self._book.held:
                self._stop_held(claim, why)
        self._report()
        self._start_or_return()

    def _stop_held(self, claim: Claim, why: StopReason) -> None:
        place = next((place for place in self._places() if place.claim is claim), None)
        if place is None:  # never started, and never will
            self._book.settle(verdicts.stopped_unstarted(claim, why))
        elif place.why is None:
            self._interrupt(place, claim, why)
        elif why is StopReason.LOST:  # whatever it was stopped for: the ledger must not be told any more
            place.why = why

    def _stopped(self, place: P, claim: Claim, why: StopReason) -> Outcome:
        took_us = round((self._runtime.monotonic() - place.began_at) * 1_000_000)
        return verdicts.stopped(claim, why, took_us=took_us, timeout_s=self._deadlines.of(claim.job))

    def _give_up(self, place: P, claim: Claim, why: StopReason) -> bool:
        """Report a run that goes on executing; False if it has just ended by itself. Called under the lock."""
        self._trust.stop(claim.run_id, claim.token, why)
        if not self._book.settle(self._stopped(place, claim, why)):
            self._trust.forget(claim.run_id, claim.token)
            return False
        place.why = why
        self._abandoned.add(place)
        self._news.append(
            Event(
                What.RUN_ABANDONED,
                job=claim.job,
                run_id=claim.run_id,
                token=claim.token,
                attempt=claim.attempt,
                reason=f"stopped ({why}), but its {self._name} goes on until the job next asks its run{_beside(claim)}",
            )
        )
        return True

    def _is_exhausted(self) -> bool:
        return len(self._abandoned) >= self._slots

    def _report(self) -> None:
        """Tell what happened, outside of the lock."""
        was_exhausted, self._has_been_exhausted = self._has_been_exhausted, self._is_exhausted()
        if self._has_been_exhausted and not was_exhausted:
            self._news.append(self._exhaustion())
        with suppress(IndexError):  # somebody else may be telling, too
            while True:
                self._emit(self._news.popleft())

    def _exhaustion(self) -> Event:
        jobs = sorted({place.claim.job for place in list(self._abandoned) if place.claim is not None})
        return Event(
            What.RUNNER_WARNING,
            job=", ".join(jobs) or None,
            reason=f"{self._slots} stopped runs go on executing, as many as there are slots; nothing is taken until"
            " one of them ends. Let these jobs call run.check() more often, give what they wait for a timeout, or run"
            " them in worker processes, which can be killed",
        )

    # -- looking after it ------------------------------------------------------------------------------------------

    def _look(self, now: float) -> float:
        executing = [(claim, place.began_at) for place in self._places() if (claim := place.claim) is not None]
        overdue, look_at = self._deadlines.sort(executing, now)
        for claim in overdue:
            self._stop(claim, StopReason.TIMED_OUT)
        self._return_waiting(now)
        if self._queue:
            look_at = min(look_at, now + _LOOK_AT_QUEUE_S)
        look_at = min(self._tend(now), look_at if self._is_busy(now) else NEVER)
        self._report()
        self._book.tell()
        self._empty.set()
        return look_at

    def _is_busy(self, now: float) -> bool:
        """Whether there is something to look after, or was a moment ago: nobody need be woken for every claim."""
        return bool(self._book.held) or now < self._submitted_at + self._deadlines.looks_every_s

    def _return_waiting(self, now: float) -> None:
        if self._queue and now > self._submitted_at + _LONGEST_WAIT_S and self._is_full():
            self.take_back()

    def _is_full(self) -> bool:
        """Whether no slot has come free for a while."""
        return self._is_exhausted() or self._is_stuck() or self._stuck(_LONGEST_WAIT_S) >= self._slots

    def _stuck(self, longer_than_s: float) -> int:
        """Return how many runs have been executing for longer than that."""
        began_by = self._runtime.monotonic() - longer_than_s
        return sum(place.claim is not None and place.began_at < began_by for place in self._places())

    def _wait_until_empty(self, timeout_s: float) -> None:
        give_up_at = self._runtime.monotonic() + timeout_s
        while True:
            self._empty.clear()
            left_s = give_up_at - self._runtime.monotonic()
            if not self._book.held or left_s <= 0:
                return
            self._empty.wait(min(left_s, 1.0))

    def _report_trouble(self, error: BaseException) -> None:
        self._emit(Event(What.RUNNER_WARNING, reason=f"the {self._name} runner met {error!r}, and goes on"))


def _key(claim: Claim) -> Key:
    return claim.run_id, claim.token


def broken(claim: Claim, error: BaseException) -> Outcome:
    """Return the outcome of a run whose error nobody caught."""
    text = f"{type(error).__name__}: {error}"
    return Outcome(
        claim.run_id, claim.attempt, claim.token, How.FAILED, error_code=type(error).__name__, error=text[:2000]
    )


def _beside(claim: Claim) -> str:
    """Say what its exclusive key, which is free once its end is reported, does not keep from happening."""
    if claim.exclusive_key is None:
        return ""
    return f"; its key {claim.exclusive_key!r} is free, and the next run may begin beside it"
