"""The runner of `fencepost run`: jobs execute in worker processes, which can be killed; this process runs none of them.

::

    submit ──▶ queue ──▶ worker (one claim at a time; a few short ones wait in its socket) ──▶ outcome ──▶ collect
                 ▲            │
                 └─ recalled ─┘  behind a run that takes long, or when the worker died before it took them

**Promises.** What `fencepost.engine.runners.runner` promises, and: a claim's outcome is told when its process can do no
more harm, so whoever follows does not meet it. Which claim a dead worker was executing is known exactly, from shared
memory; one that it had not begun is given to another or handed back. A claim waits at most about a second behind a long
run, then it is handed back. Workers are ended by guardians of their own before trust closes, also if this process is
stopped, killed, or hangs.

**Stopping.** The worker raises `Stopped` in the job, so that its ``finally`` blocks run; after `term_grace_s` its
process group is killed. When the right to act is gone (`lose`, or one run's `StopReason.LOST`), there is no grace.

**Suspended.** A run of a `fenced` job that has been executing for a moment has its worker to itself, and its guardian
waits for the run's timeout instead of the end of trust. The death of this process still ends it at once.

**Trouble.** Where the application cannot be loaded, workers are started ever less often, `room` is zero, and an event
tells why in one sentence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import OutputSink, ProgramExit, Runtime, Task, WorkerProcess
from fencepost.core.timings import Timings
from fencepost.engine import wire
from fencepost.engine.runners import verdicts
from fencepost.engine.runners.claim_ahead import HORIZON_S, MOST_AHEAD
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.engine.runners.run_times import RunTimes
from fencepost.engine.runners.worker_handle import Assignment, WorkerHandle, WorkerStage
from fencepost.engine.runners.worker_pool import START_WITHIN_S, WorkerPool

_OVERHEAD_S = 25e-6  # what the shortest run costs all the same
_QUICK_S = 200e-6  # such runs are over before another worker would have woken up for them
_STUCK_AFTER_S = 0.05  # a run that takes longer has nothing queued behind it
_BACK_AFTER_S = 1.0  # a claim that could not begin by then is handed back
_BUSY_NAP_S, _IDLE_NAP_S = 0.05, 1.0
_GATHER_S = 0.001  # answers that come together are read together
_SHUTDOWN_GRACE_S = 3.0
_PAUSE_S = 0.5
_VERY_LONG_S = 1e9


class ProcessRunner:
    """Executes claims in `slots` worker processes, which load `app` (``package.module:app``)."""

    def __init__(
        self,
        app: str,
        *,
        slots: int,
        timings: Timings,
        runtime: Runtime,
        timeouts: Mapping[str, float | None] | None = None,
        fenced: Collection[str] = (),
        node: str | None = None,
        prepare: str | None = None,
        modules: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        output: OutputSink | None = None,
        emit: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            app: what the workers load.
            slots: how many workers, each of which executes one claim at a time.
            timings: of the node's lease; `term_grace_s` and `kill_s` are what stopping a run may take.
            runtime: starts the workers.
            timeouts: how many seconds a run of a job may take.
            fenced: the jobs whose runs are suspended, not stopped, while nobody knows whether they may go on.
            node: the name of the node, as runs shall see it.
            prepare: a function, as ``module:name``, that each worker calls before it loads `app`; for logs. If it
                returns a function, that is called when `app` has been loaded.
            modules: what the workers import besides: these declare jobs of `app`.
            env: the workers' environment; ours if not given.
            command: what starts a worker; this Python, with our module path, if not given.
            output: gets what the workers write; if not given, it only goes where ours goes.
            emit: is told of trouble with workers.
        """
        self._timings = timings
        self._runtime = runtime
        self._timeouts = timeouts or {}
        self._fenced = frozenset(fenced)
        self._told = emit
        self._on_outcome: Callable[[], None] = lambda: None
        self._workers = runtime.workers(output)
        self._lock = runtime.lock()
        self._crew = WorkerPool(
            self._workers,
            wire.Greeting(app, node, prepare, tuple(modules)),
            slots=slots,
            timings=timings,
            runtime=runtime,
            lock=self._lock,
            command=command,
            env=env,
            emit=emit,
        )
        self._changed = runtime.event()
        self._times = RunTimes()
        self._queue: deque[Assignment] = deque()
        self._held: dict[tuple[int, int], Assignment] = {}  # by run and token: the same run may come again
        self._outcomes: list[Outcome] = []
        self._has_news = False
        self._is_idle = False
        self._is_over = False
        self._task: Task | None = None

    # -- the contract of a runner --------------------------------------------------------------------------------------

    def start(self, on_outcome: Callable[[], None]) -> None:
        """Begin to start workers; there is room when the first one is ready and trusted."""
        self._on_outcome = on_outcome
        self._task = self._runtime.spawn("fencepost-workers", self._run)

    def room(self) -> int:
        """How many more claims it would take now."""
        with self._lock:
            if self._crew.is_closing or not self._crew.may_act(self._runtime.monotonic()):
                return 0
            ahead = max(1, min(self._times.within(HORIZON_S), MOST_AHEAD))
            return max(0, sum(1 if hand.is_stuck else ahead for hand in self._crew.ready()) - len(self._held))

    def submit(self, claims: Sequence[Claim]) -> None:
        """Take these, and send what the workers can take at once."""
        now = self._runtime.monotonic()
        with self._lock:
            for claim in claims:
                assignment = Assignment(claim, now)
                self._held[claim.run_id, claim.token] = assignment
                self._queue.append(assignment)
            if self._crew.is_closing:
                self._hand_back(self._queue)
            self._feed(now)
            is_idle = self._is_idle
        if is_idle and not self._is_over:
            self._workers.wake()
        self._tell()

    def collect(self) -> list[Outcome]:
        """Return what ended since the last call."""
        with self._lock:
            outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def running(self) -> int:
        """How many claims it has, started or not."""
        return len(self._held)

    def stop(self, run_id: int, token: int, why: StopReason) -> None:
        """Stop one run; its outcome follows when its process is gone."""
        with self._lock:
            if (assignment := self._held.get((run_id, token))) is not None:
                self._stop(assignment, why, self._runtime.monotonic())
        self._tell()

    def trust(self, until: float) -> None:
        """Let the workers act until then, and their guardians wait as long."""
        with self._lock:
            self._crew.trust(until)
        self._workers.wake()

    def lose(self) -> None:
        """End all workers at once; fresh ones are started when there is trust again."""
        with self._lock:
            self._crew.lose()
            self._hand_back(self._queue)
        self._tell()

    def suspend(self) -> list[Claim]:
        """Keep up the fenced runs that have a worker to themselves, and end all other workers at once."""
        with self._lock:
            kept = self._crew.suspend()
            self._hand_back(self._queue)
        self._tell()
        return kept

    def resume(self, runs: Collection[tuple[int, int]]) -> None:
        """Let these go on."""
        with self._lock:
            for key in runs:
                if (assignment := self._held.get(key)) is not None and assignment.hand is not None:
                    self._crew.resume(assignment.hand)

    def take_back(self) -> None:
        """Hand back every claim that has not started."""
        with self._lock:
            for hand in self._crew.hands:
                self._queue.extendleft(reversed(hand.take_back()))
            self._hand_back(self._queue)
        self._tell()

    def close(self, grace_s: float) -> None:
        """Hand back what has not started, wait for the rest, stop what is left, and end the workers."""
        self._crew.is_closing = True
        if self._task is None:
            self._workers.close()
            return
        self.take_back()
        self._await(lambda: not self._held, within_s=grace_s)
        with self._lock:
            for assignment in list(self._held.values()):
                self._stop(assignment, StopReason.SHUTDOWN, self._runtime.monotonic())
        self._workers.wake()
        self._await(lambda: not self._held, within_s=self._timings.stop_s + 1.0)
        with self._lock:
            for hand in self._crew.hands:
                if hand.stage is not WorkerStage.ENDING:
                    hand.end(kill_at=self._runtime.monotonic() + 1.0)
        self._workers.wake()
        self._await(lambda: not self._crew.hands, within_s=3.0)
        self._is_over = True
        self._workers.wake()
        self._task.join(3.0)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_over:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - without this loop no run would end any more
                self._told(Event(What.RUNNER_WARNING, reason=f"the workers' loop stumbled: {error!r}"))
                self._runtime.sleep(_PAUSE_S)
        self._workers.close()

    def _turn(self) -> None:
        heard = [(worker, worker.receive()) for worker in self._workers.wait(self._nap_s())]
        dead = [(hand, ended) for hand in list(self._crew.hands) if (ended := hand.ended()) is not None]
        now = self._runtime.monotonic()
        with self._lock:
            for worker, lines in heard:
                self._hear(worker, lines)
            for hand, ended in dead:
                self._bury(hand, ended, now)
            self._look_after(now)
            self._feed(now)
        self._tell()
        if heard:
            self._runtime.sleep(_GATHER_S)

    def _nap_s(self) -> float:
        with self._lock:
            self._is_idle = not self._held and self._crew.is_complete
        return _IDLE_NAP_S if self._is_idle else _BUSY_NAP_S

    def _tell(self) -> None:
        self._changed.set()
        if self._has_news:
            self._has_news = False
            self._on_outcome()

    def _look_after(self, now: float) -> None:
        """Do whatever time demands."""
        for hand in self._crew.hands:
            self._watch(hand, now)
        while self._queue and now - self._queue[0].taken_at >= _BACK_AFTER_S:
            self._emit(verdicts.returned(self._queue.popleft().claim))
        self._crew.recruit(now)

    def _watch(self, hand: WorkerHandle, now: float) -> None:
        if now >= hand.kill_at:
            hand.kill()
        elif self._crew.is_late(hand, now):
            hand.trouble = f"the application was not loaded within {START_WITHIN_S:.0f} s"
            hand.kill()
        elif hand.stage is WorkerStage.READY and (executing := hand.executing()) is not None:
            assignment, started_at = executing
            if now - started_at >= _STUCK_AFTER_S and not hand.is_stuck:
                self._queue.extendleft(reversed(hand.take_back()))
                hand.is_stuck = True  # only now: whatever leaves a worker's hands, it is taken to be moving
            timeout_s = self._timeouts.get(assignment.claim.job)
            if hand.is_stuck and not hand.is_lifted and assignment.claim.job in self._fenced:
                self._crew.lift(hand, assignment, overdue_at=started_at + (timeout_s or _VERY_LONG_S))
            if timeout_s is not None and now - started_at >= timeout_s:
                self._stop(assignment, StopReason.TIMED_OUT, now)

    # -- workers die --------------------------------------------------------------------------------------------------

    def _bury(self, hand: WorkerHandle, ended: ProgramExit, now: float) -> None:
        """Answer for what a worker that is gone had in its hands."""
        if hand.process is not None:
            self._hear(hand.process, hand.process.receive())
        if hand.interrupted is not None:
            assignment, outcome = hand.interrupted
            has_ended = outcome.how == How.SUCCEEDED  # it was told, and had done its work all the same
            verdict = outcome if has_ended else self._verdict(assignment, ended, took_us=outcome.took_us, now=now)
            self._emit(verdict)
        executing = hand.executing()
        if executing is not None:
            assignment, started_at = executing
            self._emit(self._verdict(assignment, ended, took_us=round((now - started_at) * 1_000_000), now=now))
        self._requeue(held for held in hand.in_hand.values() if executing is None or held is not executing[0])
        self._crew.dismiss(hand, ended)

    def _requeue(self, assignments: Iterable[Assignment]) -> None:
        """Let others begin what a dead worker had not begun."""
        waiting: list[Assignment] = []
        for assignment in assignments:
            assignment.hand = None
            if assignment.stop is None:
                waiting.append(assignment)
            else:
                self._emit(verdicts.stopped_unstarted(assignment.claim, assignment.stop))
        self._queue.extendleft(reversed(waiting))
        if self._crew.is_closing:
            self._hand_back(self._queue)

    def _verdict(self, assignment: Assignment, ended: ProgramExit, *, took_us: int, now: float) -> Outcome:
        claim = assignment.claim
        if assignment.stop is not None:
            return verdicts.stopped(claim, assignment.stop, took_us=took_us, timeout_s=self._timeouts.get(claim.job))
        if ended.forced is not None and now >= self._crew.trusted_until:
            return verdicts.lost(claim, took_us=took_us)
        return verdicts.crashed(claim, ended, took_us=took_us)

    # -- claims come and go --------------------------------------------------------------------------------------------

    def _feed(self, now: float) -> None:
        """Send what waits to workers that have room: evenly, or what is quick to as few as will do."""
        if not self._queue or not self._crew.may_act(now):
            return
        hands = self._crew.ready()
        is_quick = self._times.are_shorter_than(_QUICK_S)
        if not is_quick:
            hands.sort(key=lambda hand: hand.load_s)
        for index, hand in enumerate(hands):
            self._fill(hand, len(self._queue) if is_quick else -(-len(self._queue) // (len(hands) - index)))

    def _fill(self, hand: WorkerHandle, most: int) -> None:
        queue, expected_s = self._queue, self._times.expected_s
        for _ in range(most):
            if not queue or not hand.give(queue[0], expected_s(queue[0].claim.job)):
                return
            queue.popleft()

    def _hear(self, worker: WorkerProcess, lines: list[bytes]) -> None:
        hand = next((hand for hand in self._crew.hands if hand.process is worker), None)
        if hand is None or not lines:
            return
        try:
            answers = wire.read_lines(lines)
        except ValueError:  # somebody else wrote there: what it says can no longer be trusted
            hand.kill()
            return
        for answer in answers:
            self._note(hand, answer)

    def _note(self, hand: WorkerHandle, answer: list[Any]) -> None:
        match answer:
            case ["ready"]:
                self._crew.welcome(hand)
                self._has_news = True  # there is room where there was none
            case ["failed", why]:
                hand.trouble = why
            case ["interrupted", serial, *rest]:
                if (assignment := self._done(hand, serial)) is not None:
                    hand.interrupted = assignment, wire.outcome_of(assignment.claim, [serial, *rest])
                    hand.kill()
            case [serial, *_]:
                if (assignment := self._done(hand, serial)) is not None:
                    outcome = wire.outcome_of(assignment.claim, answer)
                    self._times.note_job(assignment.claim.job, outcome.took_us * 1e-6 + _OVERHEAD_S)
                    self._emit(outcome)

    def _done(self, hand: WorkerHandle, serial: int) -> Assignment | None:
        assignment = hand.done(serial)
        self._crew.settle(hand)
        return assignment

    def _stop(self, assignment: Assignment, why: StopReason, now: float) -> None:
        if assignment.stop is not None and why is not StopReason.LOST:
            return
        if assignment.hand is not None and assignment.stop is None:
            self._queue.extendleft(reversed(assignment.hand.take_back()))
        if assignment.hand is not None:
            assignment.hand.interrupt(assignment, why, kill_at=now + self._grace_s(why))
        elif assignment in self._queue:
            self._queue.remove(assignment)
            self._emit(verdicts.stopped_unstarted(assignment.claim, why))

    def _grace_s(self, why: StopReason) -> float:
        """How long a job may take for its last words; who lost the right to act has none."""
        if why is StopReason.LOST:
            return 0.0
        grace_s = self._timings.term_grace_s
        return min(grace_s, _SHUTDOWN_GRACE_S) if why is StopReason.SHUTDOWN else grace_s

    def _hand_back(self, queue: deque[Assignment]) -> None:
        while queue:
            self._emit(verdicts.returned(queue.popleft().claim))

    def _emit(self, outcome: Outcome) -> None:
        if self._held.pop((outcome.run_id, outcome.token), None) is not None:
            self._outcomes.append(outcome)
            self._has_news = True

    def _await(self, is_true: Callable[[], bool], *, within_s: float) -> None:
        give_up_at = self._runtime.monotonic() + within_s
        while not is_true() and (left_s := give_up_at - self._runtime.monotonic()) > 0:
            self._changed.clear()
            if not is_true():
                self._changed.wait(min(left_s, 0.1))
