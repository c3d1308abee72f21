"""The runner of `fencepost run`: it executes jobs in worker processes, which can be killed, and none in this process.

::

    submit ──▶ queue ──▶ worker (one claim at a time; a few short ones wait in its socket) ──▶ outcome ──▶ collect
                 ▲            │
                 └─ recalled ─┘  behind a run that takes long, or when the worker died before it took them

**Promises.** Those of `fencepost.engine.runners.runner`, and these. The outcome of a claim is reported when its process
can write nothing more, so the next attempt does not overlap with it. Shared memory shows exactly which claim a dead
worker was executing; claims that it had not started are sent to another worker or returned. A claim that waits behind
a long run is returned after about a second. Each worker has a guardian that ends it before the trust ends, even if
this process is stopped, killed, or hangs.

**Stopping.** The worker raises `Stopped` in the job, so that its ``finally`` blocks run. After `term_grace_s` its
process group is killed. There is no grace when the lease is lost (`lose`, or `StopReason.LOST` for one run).

**Suspending.** While a run of a `fenced` job has been executing for more than a moment, its worker has no other claims,
and its guardian waits for the run's timeout instead of the end of the trust. If this process dies, the worker still
ends at once.

**Load errors.** If the application cannot be loaded, the pauses between starts of workers grow, `room` is zero, and an
event reports the reason in one sentence.
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

_OVERHEAD_S = 25e-6  # what even the shortest run costs
_QUICK_S = 200e-6  # shorter runs end before another worker would have woken up for them
_STUCK_AFTER_S = 0.05  # no claims are queued behind a run that takes longer
_RETURN_AFTER_S = 1.0  # a claim that could not start by then is returned
_BUSY_WAIT_S, _IDLE_WAIT_S = 0.05, 1.0  # how late a timeout is noticed; an idle runner is woken for a claim
_GATHER_S = 0.001  # so that answers which arrive at about the same time are read together
_SHUTDOWN_GRACE_S = 3.0  # the grace of the node was before it; what is left is for ending in order
_PAUSE_S = 0.5  # after an error that was not expected, so that it does not fill the log
_VERY_LONG_S = 1e9  # no timeout: thirty years


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
        """Prepare; no process is started.

        Args:
            app: the application that the workers load.
            slots: the number of workers. Each executes one claim at a time.
            timings: the timings of the node's lease; `term_grace_s` and `kill_s` limit how long stopping a run takes.
            runtime: starts the workers.
            timeouts: how many seconds a run of a job may take.
            fenced: the jobs whose runs are suspended, not stopped, while it is unknown whether they may continue.
            node: the name of the node that runs see.
            prepare: a function, as ``module:name``, that each worker calls before it loads `app`, to set up logging.
                If it returns a function, that function is called when `app` has been loaded.
            modules: other modules that declare jobs of `app`; the workers import them too.
            env: the environment of the workers, by default that of this process.
            command: the command that starts a worker, by default this Python with the module path of this process.
            output: receives what the workers write; without it, their output only goes where ours goes.
            emit: receives events about problems with workers.
        """
        self._timings = timings
        self._runtime = runtime
        self._timeouts = timeouts or {}
        self._fenced = frozenset(fenced)
        self._emit_event = emit
        self._on_outcome: Callable[[], None] = lambda: None
        self._workers = runtime.workers(output)
        self._lock = runtime.lock()
        self._pool = WorkerPool(
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
        self._held: dict[tuple[int, int], Assignment] = {}  # by run and token: the same run may be claimed again
        self._outcomes: list[Outcome] = []
        self._must_notify = False
        self._is_idle = False
        self._is_over = False
        self._task: Task | None = None

    # -- the contract of a runner --------------------------------------------------------------------------------------

    def start(self, on_outcome: Callable[[], None]) -> None:
        """Begin to start workers. `room` is zero until the first one is ready and trusted."""
        self._on_outcome = on_outcome
        self._task = self._runtime.spawn("fencepost-workers", self._run)

    def room(self) -> int:
        """Return how many more claims the runner would take now."""
        with self._lock:
            if self._pool.is_closing or not self._pool.may_act(self._runtime.monotonic()):
                return 0
            ahead = max(1, min(self._times.within(HORIZON_S), MOST_AHEAD))
            return max(0, sum(1 if handle.is_stuck else ahead for handle in self._pool.ready()) - len(self._held))

    def submit(self, claims: Sequence[Claim]) -> None:
        """Take these claims, and send those that workers can take at once."""
        now = self._runtime.monotonic()
        with self._lock:
            for claim in claims:
                assignment = Assignment(claim, now)
                self._held[claim.run_id, claim.token] = assignment
                self._queue.append(assignment)
            if self._pool.is_closing:
                self._hand_back(self._queue)
            self._send_queued(now)
            is_idle = self._is_idle
        if is_idle and not self._is_over:
            self._workers.wake()
        self._notify()

    def collect(self) -> list[Outcome]:
        """Return the outcomes since the last call."""
        with self._lock:
            outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def running(self) -> int:
        """Return how many claims the runner has, started or not."""
        return len(self._held)

    def stop(self, run_id: int, token: int, why: StopReason) -> None:
        """Stop one run. Its outcome follows when its process is gone."""
        with self._lock:
            if (assignment := self._held.get((run_id, token))) is not None:
                self._stop(assignment, why, self._runtime.monotonic())
        self._notify()

    def trust(self, until: float) -> None:
        """Extend the trust of the workers, and the deadlines of their guardians."""
        with self._lock:
            self._pool.trust(until)
        self._workers.wake()

    def lose(self) -> None:
        """End all workers at once. New ones are started when there is trust again."""
        with self._lock:
            self._pool.lose()
            self._hand_back(self._queue)
        self._notify()

    def suspend(self) -> list[Claim]:
        """Suspend the fenced runs whose worker has no other claim, and end all other workers at once."""
        with self._lock:
            kept = self._pool.suspend()
            self._hand_back(self._queue)
        self._notify()
        return kept

    def resume(self, runs: Collection[tuple[int, int]]) -> None:
        """Let these runs continue."""
        with self._lock:
            for key in runs:
                if (assignment := self._held.get(key)) is not None and assignment.handle is not None:
                    self._pool.resume(assignment.handle)

    def take_back(self) -> None:
        """Return every claim that has not started."""
        with self._lock:
            for handle in self._pool.handles:
                self._queue.extendleft(reversed(handle.take_back()))
            self._hand_back(self._queue)
        self._notify()

    def close(self, grace_s: float) -> None:
        """Return the claims that have not started, wait for the rest, stop the remaining runs, and end the workers."""
        self._pool.is_closing = True
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
            for handle in self._pool.handles:
                if handle.stage is not WorkerStage.ENDING:
                    handle.end(kill_at=self._runtime.monotonic() + 1.0)
        self._workers.wake()
        self._await(lambda: not self._pool.handles, within_s=3.0)
        self._is_over = True
        self._workers.wake()
        self._task.join(3.0)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_over:
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - without this loop no run would end any more
                self._emit_event(Event(What.RUNNER_WARNING, reason=f"an error in the loop of the workers: {error!r}"))
                self._runtime.sleep(_PAUSE_S)
        self._workers.close()

    def _step(self) -> None:
        received = [(worker, worker.receive()) for worker in self._workers.wait(self._wait_s())]
        dead = [(handle, ended) for handle in list(self._pool.handles) if (ended := handle.ended()) is not None]
        now = self._runtime.monotonic()
        with self._lock:
            for worker, lines in received:
                self._read_answers(worker, lines)
            for handle, ended in dead:
                self._remove_dead(handle, ended, now)
            self._check_deadlines(now)
            self._send_queued(now)
        self._notify()
        if received:
            self._runtime.sleep(_GATHER_S)

    def _wait_s(self) -> float:
        with self._lock:
            self._is_idle = not self._held and self._pool.is_complete
        return _IDLE_WAIT_S if self._is_idle else _BUSY_WAIT_S

    def _notify(self) -> None:
        self._changed.set()
        if self._must_notify:
            self._must_notify = False
            self._on_outcome()

    def _check_deadlines(self, now: float) -> None:
        """Enforce timeouts, return claims that waited too long, and start missing workers."""
        for handle in self._pool.handles:
            self._check_worker(handle, now)
        while self._queue and now - self._queue[0].taken_at >= _RETURN_AFTER_S:
            self._report(verdicts.returned(self._queue.popleft().claim))
        self._pool.start_missing(now)

    def _check_worker(self, handle: WorkerHandle, now: float) -> None:
        if now >= handle.kill_at:
            handle.kill()
        elif self._pool.is_late(handle, now):
            handle.failure = f"the application was not loaded within {START_WITHIN_S:.0f} s"
            handle.kill()
        elif handle.stage is WorkerStage.READY and (executing := handle.executing()) is not None:
            assignment, started_at = executing
            if now - started_at >= _STUCK_AFTER_S and not handle.is_stuck:
                self._queue.extendleft(reversed(handle.take_back()))
                handle.is_stuck = True  # after take_back, which resets it for every claim that it removes
            timeout_s = self._timeouts.get(assignment.claim.job)
            if handle.is_stuck and not handle.is_exempt and assignment.claim.job in self._fenced:
                self._pool.exempt(handle, assignment, overdue_at=started_at + (timeout_s or _VERY_LONG_S))
            if timeout_s is not None and now - started_at >= timeout_s:
                self._stop(assignment, StopReason.TIMED_OUT, now)

    # -- workers die --------------------------------------------------------------------------------------------------

    def _remove_dead(self, handle: WorkerHandle, ended: ProgramExit, now: float) -> None:
        """Report or requeue the claims of a worker that is gone."""
        if handle.process is not None:
            self._read_answers(handle.process, handle.process.receive())
        if handle.interrupted is not None:
            assignment, outcome = handle.interrupted
            has_ended = outcome.how == How.SUCCEEDED  # it was asked to stop, but succeeded anyway
            verdict = outcome if has_ended else self._verdict(assignment, ended, took_us=outcome.took_us, now=now)
            self._report(verdict)
        executing = handle.executing()
        if executing is not None:
            assignment, started_at = executing
            self._report(self._verdict(assignment, ended, took_us=round((now - started_at) * 1_000_000), now=now))
        self._requeue(held for held in handle.assignments.values() if executing is None or held is not executing[0])
        self._pool.remove(handle, ended)

    def _requeue(self, assignments: Iterable[Assignment]) -> None:
        """Queue the claims that a dead worker had not started."""
        waiting: list[Assignment] = []
        for assignment in assignments:
            assignment.handle = None
            if assignment.stop is None:
                waiting.append(assignment)
            else:
                self._report(verdicts.stopped_unstarted(assignment.claim, assignment.stop))
        self._queue.extendleft(reversed(waiting))
        if self._pool.is_closing:
            self._hand_back(self._queue)

    def _verdict(self, assignment: Assignment, ended: ProgramExit, *, took_us: int, now: float) -> Outcome:
        claim = assignment.claim
        if assignment.stop is not None:
            return verdicts.stopped(claim, assignment.stop, took_us=took_us, timeout_s=self._timeouts.get(claim.job))
        if ended.forced is not None and now >= self._pool.trusted_until:
            return verdicts.lost(claim, took_us=took_us)
        return verdicts.crashed(claim, ended, took_us=took_us)

    # -- sending claims and reading answers ----------------------------------------------------------------------------

    def _send_queued(self, now: float) -> None:
        """Send queued claims to workers that have room: evenly, or quick runs to as few workers as possible."""
        if not self._queue or not self._pool.may_act(now):
            return
        handles = self._pool.ready()
        is_quick = self._times.are_shorter_than(_QUICK_S)
        if not is_quick:
            handles.sort(key=lambda handle: handle.load_s)
        for index, handle in enumerate(handles):
            self._send_to(handle, len(self._queue) if is_quick else -(-len(self._queue) // (len(handles) - index)))

    def _send_to(self, handle: WorkerHandle, most: int) -> None:
        queue, expected_s = self._queue, self._times.expected_s
        for _ in range(most):
            if not queue or not handle.give(queue[0], expected_s(queue[0].claim.job)):
                return
            queue.popleft()

    def _read_answers(self, worker: WorkerProcess, lines: list[bytes]) -> None:
        handle = next((handle for handle in self._pool.handles if handle.process is worker), None)
        if handle is None or not lines:
            return
        try:
            answers = wire.read_lines(lines)
        except ValueError:  # other code wrote to the descriptor, so the answers can no longer be trusted
            handle.kill()
            return
        for answer in answers:
            self._handle_answer(handle, answer)

    def _handle_answer(self, handle: WorkerHandle, answer: list[Any]) -> None:
        match answer:
            case [int(serial), *_]:  # first, because nearly all answers are outcomes
                if (assignment := self._done(handle, serial)) is not None:
                    outcome = wire.outcome_of(assignment.claim, answer)
                    self._times.note_job(assignment.claim.job, outcome.took_us * 1e-6 + _OVERHEAD_S)
                    self._report(outcome)
            case ["ready"]:
                self._pool.mark_ready(handle)
                self._must_notify = True  # there is more room than before
            case ["failed", why]:
                handle.failure = why
            case ["interrupted", serial, *rest]:
                if (assignment := self._done(handle, serial)) is not None:
                    handle.interrupted = assignment, wire.outcome_of(assignment.claim, [serial, *rest])
                    handle.kill()

    def _done(self, handle: WorkerHandle, serial: int) -> Assignment | None:
        assignment = handle.done(serial)
        self._pool.end_exemption(handle)
        return assignment

    def _stop(self, assignment: Assignment, why: StopReason, now: float) -> None:
        if assignment.stop is not None and why is not StopReason.LOST:
            return
        if assignment.handle is not None and assignment.stop is None:
            self._queue.extendleft(reversed(assignment.handle.take_back()))
        if assignment.handle is not None:
            assignment.handle.interrupt(assignment, why, kill_at=now + self._grace_s(why))
        elif assignment in self._queue:
            self._queue.remove(assignment)
            self._report(verdicts.stopped_unstarted(assignment.claim, why))

    def _grace_s(self, why: StopReason) -> float:
        """Return how long a stopped job may take to end: no time at all if the lease is lost."""
        if why is StopReason.LOST:
            return 0.0
        grace_s = self._timings.term_grace_s
        return min(grace_s, _SHUTDOWN_GRACE_S) if why is StopReason.SHUTDOWN else grace_s

    def _hand_back(self, queue: deque[Assignment]) -> None:
        while queue:
            self._report(verdicts.returned(queue.popleft().claim))

    def _report(self, outcome: Outcome) -> None:
        if self._held.pop((outcome.run_id, outcome.token), None) is not None:
            self._outcomes.append(outcome)
            self._must_notify = True

    def _await(self, is_true: Callable[[], bool], *, within_s: float) -> None:
        give_up_at = self._runtime.monotonic() + within_s
        while not is_true() and (left_s := give_up_at - self._runtime.monotonic()) > 0:
            self._changed.clear()
            if not is_true():
                self._changed.wait(min(left_s, 0.1))
