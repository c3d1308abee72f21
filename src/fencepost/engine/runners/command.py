"""The runner of jobs that are programs, in any language.

A program receives its run in environment variables: ``FENCEPOST_JOB``, ``FENCEPOST_RUN``, ``FENCEPOST_ATTEMPT``,
``FENCEPOST_TOKEN``, ``FENCEPOST_PARAMS`` (JSON), and where the run has them ``FENCEPOST_SCHEDULE``,
``FENCEPOST_DUE_AT``, ``FENCEPOST_WINDOW_START`` and ``FENCEPOST_WINDOW_END`` (instants in UTC). Its exit status is its
outcome: 0 means success, 75 (EX_TEMPFAIL) means retry later, and any other status means failure. The end of its
standard error is recorded as the reason.

**Promises.** Those of `fencepost.engine.runners.runner`. Each program has its own process group and its own guardian.
The guardian ends the group before the trust ends, even if this process is stopped or killed. The outcome is reported
when the group is gone. A program that is stopped gets SIGTERM, and SIGKILL after `term_grace_s`. A program that has
lost its lease gets SIGKILL at once. Processes that a program leaves in its group end with it.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from fencepost.core.events import Event, What
from fencepost.core.parameters import LONGEST_PARAMETERS
from fencepost.core.report import LONGEST_ERROR
from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import GuardedProcess, ProgramExit, Runtime
from fencepost.core.texts import beginning, end
from fencepost.core.tick import spelled_us
from fencepost.core.timings import Timings
from fencepost.engine.jobs import Job
from fencepost.engine.logs.run_logs import RunLogs
from fencepost.engine.runners import verdicts
from fencepost.engine.runners.kinds import RunnerParts
from fencepost.engine.runners.outcome import How, Outcome

TRY_AGAIN = 75  # EX_TEMPFAIL
_TAIL_BYTES = 4 * LONGEST_ERROR  # a character takes up to four bytes in UTF-8
_LONGEST_WAIT_S = (
    1.0  # waits use a clock that stops while the machine is suspended, so the monotonic clock is read again
)
_SHUTDOWN_GRACE_S = 3.0  # the grace of the node was before it; what is left is for ending in order
_TOO_LONG = 7  # E2BIG
STDOUT, STDERR = 1, 2
_FOREVER = float("inf")


class Execution:
    """One program that executes a claim or is about to be started for it."""

    def __init__(self, claim: Claim, job: Job) -> None:
        """Prepare; no process is started."""
        self.claim = claim
        self.job = job
        self.process: GuardedProcess | None = None
        self.stop: StopReason | None = None
        self.tail = Tail()


class Tail:
    """The end of a program's standard error."""

    def __init__(self) -> None:
        """Start empty."""
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """Add output, and drop the oldest chunks that are no longer needed."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) >= _TAIL_BYTES:
            self._size -= len(self._chunks.popleft())

    def __str__(self) -> str:
        """The kept output as text."""
        return b"".join(self._chunks)[-_TAIL_BYTES:].decode(errors="replace").strip()


class CommandRunner:
    """Executes programs, at most `slots` at a time."""

    def __init__(
        self,
        jobs: Mapping[str, Job],
        *,
        slots: int,
        timings: Timings,
        runtime: Runtime,
        env: Mapping[str, str] | None = None,
        emit: Callable[[Event], None] = lambda _: None,
        logs: RunLogs | None = None,
    ) -> None:
        """Prepare. Programs inherit `env`, by default the environment of this process. `logs` gets their output."""
        self._jobs = jobs
        self._slots = slots
        self._timings = timings
        self._runtime = runtime
        self._env = os.environ if env is None else env
        self._emit_event = emit
        self._logs = logs
        self._on_outcome: Callable[[], None] = lambda: None
        self._lock = runtime.lock()
        self._changed = runtime.event()
        self._executions: dict[tuple[int, int], Execution] = {}  # by run and token
        self._outcomes: list[Outcome] = []
        self._trusted_until = -_FOREVER
        self._is_closing = False

    # -- the contract of a runner --------------------------------------------------------------------------------------

    def start(self, on_outcome: Callable[[], None]) -> None:
        """Begin. No program is started before there is a claim for it."""
        self._on_outcome = on_outcome

    def room(self) -> int:
        """Return how many more programs may be started."""
        if self._is_closing or not self._may_start():
            return 0
        return max(0, self._slots - len(self._executions))

    def submit(self, claims: Sequence[Claim]) -> None:
        """Start a program for each claim. Claims for which there is no free slot or no trust are returned."""
        for claim in claims:
            if self.room() > 0:
                self._begin(Execution(claim, self._jobs[claim.job]))
            else:
                self._report(verdicts.returned(claim))

    def collect(self) -> list[Outcome]:
        """Return the outcomes since the last call."""
        with self._lock:
            outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def running(self) -> int:
        """Return how many programs run."""
        return len(self._executions)

    def stop(self, run_id: int, token: int, why: StopReason) -> None:
        """Stop one program. Its outcome follows when its process group is gone."""
        with self._lock:
            if (execution := self._executions.get((run_id, token))) is not None:
                self._stop(execution, why)

    def trust(self, until: float) -> None:
        """Extend the deadline until which programs may run, and pass it to their guardians."""
        with self._lock:
            self._trusted_until = max(self._trusted_until, until)
            for execution in self._executions.values():
                self._extend(execution)

    def lose(self) -> None:
        """Kill all programs now."""
        with self._lock:
            self._trusted_until = -_FOREVER
            for execution in self._executions.values():
                self._stop(execution, StopReason.LOST)

    def suspend(self) -> list[Claim]:
        """Kill all programs: a program cannot be suspended."""
        self.lose()
        return []

    def resume(self, runs: Collection[tuple[int, int]]) -> None:
        """Do nothing: no program is ever suspended."""

    def take_back(self) -> None:
        """Do nothing: every claim that was taken has been started."""

    def close(self, grace_s: float) -> None:
        """Start no more programs, wait for those that run, then stop the rest."""
        self._is_closing = True
        self._await_all(grace_s)
        with self._lock:
            for execution in self._executions.values():
                self._stop(execution, StopReason.SHUTDOWN)
        self._await_all(self._timings.stop_s + 1.0)

    # -- one program ---------------------------------------------------------------------------------------------------

    def _begin(self, execution: Execution) -> None:
        with self._lock:
            self._executions[execution.claim.run_id, execution.claim.token] = execution
        self._runtime.spawn(f"fencepost-command-{execution.claim.job}", lambda: self._execute(execution))

    def _execute(self, execution: Execution) -> None:
        started_at = self._runtime.monotonic()
        if self._logs is not None:
            self._logs.begin(execution.claim.run_id, execution.claim.attempt)
        try:
            ended = self._guarded(execution, started_at)
        except Exception as error:  # noqa: BLE001 - every claim needs an outcome
            self._report(_not_started(execution, error))
            if not isinstance(error, OSError):
                reason = f"the program could not be started: {error!r}"
                self._emit_event(Event(What.RUNNER_WARNING, job=execution.job.name, reason=reason))
            return
        took_us = round((self._runtime.monotonic() - started_at) * 1_000_000)
        self._report(self._verdict(execution, ended, took_us))

    def _guarded(self, execution: Execution, started_at: float) -> ProgramExit:
        process = self._runtime.guarded(
            execution.job.argv,
            env=environment(self._env, execution.claim),
            term_at=self._trusted_until - self._timings.stop_s,
            kill_at=self._trusted_until - self._timings.kill_s,
            unattended=True,
            on_stdout=None if self._logs is None else self._logging(execution, STDOUT),
            on_stderr=execution.tail.add if self._logs is None else self._logging(execution, STDERR),
        )
        with self._lock:
            execution.process = process
            self._extend(execution)
            if execution.stop is not None:
                self._end(process, execution.stop)
        overdue_at = started_at + (execution.job.policy.timeout_s or _FOREVER)
        while (ended := process.wait(self._wait_s(overdue_at))) is None:
            if self._runtime.monotonic() >= overdue_at:
                overdue_at = _FOREVER
                self.stop(execution.claim.run_id, execution.claim.token, StopReason.TIMED_OUT)
        return ended

    def _logging(self, execution: Execution, stream: int) -> Callable[[bytes], None]:
        """Return what takes in a program's output: for its log; of standard error, also for the reason of a failure."""
        claim, logs = execution.claim, self._logs

        def take_in(chunk: bytes) -> None:
            if stream == STDERR:
                execution.tail.add(chunk)
            if logs is not None:
                logs.add(claim.run_id, claim.attempt, stream, chunk)

        return take_in

    def _wait_s(self, overdue_at: float) -> float:
        return max(0.0, min(overdue_at - self._runtime.monotonic(), _LONGEST_WAIT_S))

    def _extend(self, execution: Execution) -> None:
        until = self._trusted_until
        if execution.process is not None and execution.stop is None and until > -_FOREVER:
            execution.process.extend(term_at=until - self._timings.stop_s, kill_at=until - self._timings.kill_s)

    def _stop(self, execution: Execution, why: StopReason) -> None:
        """Stop a program; called with the lock held. The first reason stands, except that a lost lease always kills."""
        if execution.stop is not None and why is not StopReason.LOST:
            return
        execution.stop = why
        if execution.process is not None:
            self._end(execution.process, why)

    def _end(self, process: GuardedProcess, why: StopReason) -> None:
        if why is StopReason.LOST:
            process.kill()
            return
        grace_s = self._timings.term_grace_s
        if why is StopReason.SHUTDOWN:
            grace_s = min(grace_s, _SHUTDOWN_GRACE_S)
        kill_at = self._runtime.monotonic() + grace_s
        process.extend(term_at=0.0, kill_at=min(kill_at, self._trusted_until - self._timings.kill_s))

    def _verdict(self, execution: Execution, ended: ProgramExit, took_us: int) -> Outcome:
        claim = execution.claim
        if ended.forced is None:
            return _answered(execution, ended, took_us)
        if execution.stop is not None:
            timeout_s = execution.job.policy.timeout_s
            return verdicts.stopped(claim, execution.stop, took_us=took_us, timeout_s=timeout_s)
        if self._runtime.monotonic() >= self._trusted_until:
            return verdicts.lost(claim, took_us=took_us)
        return verdicts.crashed(claim, ended, took_us=took_us)

    # -- all of them ---------------------------------------------------------------------------------------------------

    def _may_start(self) -> bool:
        return self._runtime.monotonic() < self._trusted_until - self._timings.stop_s

    def _report(self, outcome: Outcome) -> None:
        if self._logs is not None:
            self._logs.over(outcome.run_id, outcome.attempt)
        with self._lock:
            self._executions.pop((outcome.run_id, outcome.token), None)
            self._outcomes.append(outcome)
        self._changed.set()
        self._on_outcome()

    def _await_all(self, within_s: float) -> None:
        give_up_at = self._runtime.monotonic() + within_s
        while self._executions and (left_s := give_up_at - self._runtime.monotonic()) > 0:
            self._changed.clear()
            if self._executions:
                self._changed.wait(min(left_s, _LONGEST_WAIT_S))


def environment(inherited: Mapping[str, str], claim: Claim) -> dict[str, str]:
    """Return a program's environment: the inherited variables and those that describe the run."""
    variables = {
        "FENCEPOST_JOB": claim.job,
        "FENCEPOST_RUN": str(claim.run_id),
        "FENCEPOST_ATTEMPT": str(claim.attempt),
        "FENCEPOST_TOKEN": str(claim.token),
        "FENCEPOST_PARAMS": _fitting_params(claim.params),
        "FENCEPOST_SCHEDULE": claim.schedule,
        "FENCEPOST_DUE_AT": _instant(claim.due_at_us),
        "FENCEPOST_WINDOW_START": _instant(claim.window_start_us),
        "FENCEPOST_WINDOW_END": _instant(claim.window_end_us),
    }
    known = {name: value for name, value in inherited.items() if name not in variables}
    return known | {name: value for name, value in variables.items() if value is not None}


def _fitting_params(params: str) -> str:
    """Return JSON that fits into a variable: escaped, characters beyond ASCII may take three times as many bytes."""
    if len(params) <= LONGEST_PARAMETERS:
        return params
    short = json.dumps(json.loads(params), ensure_ascii=False, separators=(",", ":"))
    return params if any("\ud800" <= each <= "\udfff" for each in short) else short  # surrogates cannot be encoded


def _instant(at_us: int | None) -> str | None:
    return None if at_us is None else spelled_us(at_us)


def _answered(execution: Execution, ended: ProgramExit, took_us: int) -> Outcome:
    claim = execution.claim
    if ended.status == 0:
        return Outcome(claim.run_id, claim.attempt, claim.token, How.SUCCEEDED, took_us=took_us)
    code = f"exit {ended.status}" if ended.status > 0 else f"signal {-ended.status}"
    return Outcome(
        claim.run_id,
        claim.attempt,
        claim.token,
        How.RETRY if ended.status == TRY_AGAIN else How.FAILED,
        took_us=took_us,
        error_code=code,
        error=_error(execution, ended),
    )


def _error(execution: Execution, ended: ProgramExit) -> str:
    sentence = f"{execution.job.argv[0]} {verdicts.description(ended)}"
    stderr_end = str(execution.tail)
    if not stderr_end:
        return beginning(f"{sentence}; it wrote nothing to standard error", LONGEST_ERROR)
    return f"{beginning(sentence, 500)}:\n{end(stderr_end, LONGEST_ERROR - 510)}"


def _not_started(execution: Execution, error: Exception) -> Outcome:
    claim, program = execution.claim, execution.job.argv[0]
    why = error.strerror if isinstance(error, OSError) else str(error)
    hint = "; its parameters are too large for the environment" if getattr(error, "errno", 0) == _TOO_LONG else ""
    return Outcome(
        claim.run_id,
        claim.attempt,
        claim.token,
        How.FAILED,
        error_code="not started",
        error=beginning(f"cannot run {program!r}: {why or error}{hint}", LONGEST_ERROR),
    )


def make_runner(given: RunnerParts) -> CommandRunner:
    """Make the runner for an application's programs."""
    return CommandRunner(
        given.jobs,
        runtime=given.context.runtime,
        slots=given.slots,
        timings=given.timings,
        emit=given.emit,
        logs=given.logs,
    )
