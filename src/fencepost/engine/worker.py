"""The code inside a worker process: it loads the application, then executes one claim at a time.

The process runner starts it. It holds no lease. It ends when it is asked to, or when its supervisor is gone.

**Promises.** The shared page shows a claim before its function is called, and the answer is written as soon as the
function has returned. To stop a claim, `Stopped` is raised in it once, on the main thread (a coroutine is cancelled),
so that its ``finally`` blocks run undisturbed. Then the worker answers and ends, because the interruption may have left
its state inconsistent. A worker ignores the signals that terminals and service managers send to all processes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from fencepost.core.masked_values import MASKED
from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import Runtime
from fencepost.core.texts import beginning
from fencepost.engine import wire
from fencepost.engine.logs.records import RecordCapture, is_not_printed
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.engine.shared_page import SharedPage
from fencepost.engine.trust import SharedPageTrust
from fencepost.errors import FencepostError, Stopped
from fencepost.threaded import ThreadedRuntime
from fencepost.threaded.collection import loading
from fencepost.threaded.worker_line import WorkerLine, prepare_streams
from fencepost.threaded.worker_output import WorkerOutput

_LONGEST_ERROR = 2000  # fits into one message; the log of the run has the rest
_NOT_LOADED = 1  # the exit status; the answer that was sent before says why


class Executor(Protocol):
    """Executes claims for an application."""

    def execute(self, claim: Claim) -> Outcome:
        """Execute a claim and return its outcome."""
        ...

    def cancel(self) -> bool:
        """Cancel the current claim if it is a coroutine, else return False. Called while it executes."""
        ...


Load = Callable[[wire.Greeting, SharedPageTrust], Executor]
"""Loads an application by its name."""


class SupervisorLine(Protocol):
    """The connection of a worker to its supervisor."""

    shared: memoryview

    def at_hand(self) -> bytes | None: ...
    def receive(self) -> bytes | None: ...
    def answer(self, line: bytes) -> None: ...
    def heed(self, *, look: Callable[[], None], end: Callable[[], None]) -> None: ...
    def pass_on_term(self) -> None: ...


class Worker:
    """Executes claims, one at a time."""

    def __init__(self, line: SupervisorLine, runtime: Runtime) -> None:
        """Use this connection; nothing is read from it yet."""
        self._line = line
        self._monotonic = runtime.monotonic
        self._page = SharedPage(line.shared)
        self._trust = SharedPageTrust(self._page, runtime.monotonic)
        self._serial = 0
        self._executor: Executor | None = None
        self._output: WorkerOutput | None = None
        self._can_stop = False  # whether an exception may be raised in the job now
        self._is_waiting = False  # for the next claim
        self._is_interrupted = False
        self._is_ending = False

    def run(self, load: Load) -> int:
        """Load the application and execute claims until the end. Return the exit status."""
        message = self._line.receive()
        if message is None:
            return 0
        greeting = wire.read_greeting(message)
        try:
            self._executor = executor = load(greeting, self._trust)
        except Exception as error:  # noqa: BLE001 - the application may raise anything while it is imported
            self._line.answer(wire.failed_line(_sentence(error)))
            return _NOT_LOADED
        self._line.heed(look=self._look, end=self._end)
        if greeting.output is not None:
            self._output = captured_output(*greeting.output)
        self._line.answer(wire.READY)
        while (message := self._next()) is not None:
            self._execute(*wire.read_claim(message), executor)
        return 0

    def _next(self) -> bytes | None:
        """Return the next claim. If there is one already, one write ends the log before it and begins its own."""
        message = None if self._is_ending else self._line.at_hand()
        if message is not None and not self._is_ending:  # asked again: the signal may have come just now
            return message
        if self._output is not None:
            self._output.end()
        try:
            self._is_waiting = True  # before `_is_ending` is read: from here on the signal raises and ends the wait
            return None if self._is_ending else self._line.receive()
        except Stopped:
            return None
        finally:
            self._is_waiting = False

    def _execute(self, serial: int, claim: Claim, executor: Executor) -> None:
        if self._output is not None:
            self._output.begin(claim.run_id, claim.attempt)
        self._trust.begin(serial, claim)
        self._page.begin(serial, self._monotonic())
        self._serial = serial
        outcome = self._executed(claim, executor)
        if self._is_interrupted:
            self._is_ending = True
            self._line.answer(wire.interrupted_line(serial, outcome))
        else:
            self._line.answer(wire.outcome_line(serial, outcome))
        # The end of its log is written after the answer, which must not wait for whoever reads our output.

    def _executed(self, claim: Claim, executor: Executor) -> Outcome:
        started_at = self._monotonic()
        try:
            self._can_stop = True
            try:
                self._look()  # it may have been stopped before the page showed it
                if self._is_ending:  # or the worker told to end
                    self._end()
                return executor.execute(claim)
            finally:
                self._can_stop = False
        except BaseException as error:  # noqa: BLE001 - the executor catches what a job raises; this catches the rest
            took_us = round((self._monotonic() - started_at) * 1_000_000)
            return _failed(claim, error, took_us)

    # -- signal handlers: the main thread is somewhere in the code above, perhaps in the job ---------------------------

    def _look(self) -> None:
        """Stop the job if the supervisor has asked for it."""
        why = self._page.stopped(self._serial)
        if why is not None:
            self._interrupt(why)

    def _end(self) -> None:
        """End the worker, because the trust was not extended or the worker is no longer needed."""
        self._is_ending = True
        if self._can_stop:
            self._interrupt(self._page.stopped(self._serial) or StopReason.LOST)
        elif self._is_waiting:
            raise Stopped(StopReason.SHUTDOWN)

    def _interrupt(self, why: StopReason) -> None:
        if self._executor is None or not self._can_stop or self._is_interrupted:
            return
        self._is_interrupted = True
        self._line.pass_on_term()
        if not self._executor.cancel():
            raise Stopped(why)


def captured_output(output: int, errors: int, secret: str) -> WorkerOutput:
    """Let what this process writes and logs go to the supervisor, from now on."""
    captured = WorkerOutput(output, errors, secret)
    captured.take_over()
    MASKED.told = captured.keep
    RecordCapture(is_not_printed, lambda text: captured.log(MASKED.masked(text))).start()
    return captured


def _failed(claim: Claim, error: BaseException, took_us: int) -> Outcome:
    return Outcome(
        claim.run_id,
        claim.attempt,
        claim.token,
        How.FAILED,
        took_us=took_us,
        error_code=type(error).__name__,
        error=beginning(str(error), _LONGEST_ERROR),
    )


def _sentence(error: Exception) -> str:
    text = str(error) if isinstance(error, FencepostError) else f"{type(error).__name__}: {error}"
    return beginning(text, _LONGEST_ERROR)


def main() -> None:
    """Run as a worker process. The last three arguments are the descriptors of its connection."""
    from fencepost.engine.executor import load_executor  # noqa: PLC0415 - slow to import; the streams are set up first
    from fencepost.engine.loading import ThisProcess  # noqa: PLC0415 - as above

    ThisProcess.is_worker = True
    packets, answers, memory = map(int, sys.argv[-3:])
    prepare_streams()
    worker = Worker(WorkerLine(packets, answers, memory), ThreadedRuntime())
    raise SystemExit(worker.run(loading()(load_executor)))
