"""The worker processes of a runner: how many there are, when they are started, and until when they may act.

A worker is started whenever one is missing, unless there is no trust: then nothing could be executed, and it would be
ended again. While nobody is ready the first has the machine to itself for a moment: several that load the application
side by side are all ready late, and what is due meanwhile waits. One that does not load the application, or dies before
it was given anything, makes the next start wait, longer each time.

The lock is the runner's; all is called under it. Only the start itself, which takes a moment, is made without, on a
task of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim
from fencepost.core.runtime import Mutex, ProgramExit, Runtime, Workers
from fencepost.core.timings import Timings
from fencepost.engine import wire
from fencepost.engine.runners import verdicts
from fencepost.engine.runners.worker_handle import Assignment, WorkerHandle, WorkerStage

START_WITHIN_S = 60.0
_ALONE_S = 3.0  # for so long the others wait for the first to be ready
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_NEVER = float("-inf")
_SLACK_S = 1.0
_WORKER = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from fencepost.engine.worker import main; main()"


def worker_command() -> list[str]:
    """Return what starts a worker: this Python, finding modules where we do."""
    return [sys.executable, "-c", _WORKER, json.dumps([os.path.abspath(folder) for folder in sys.path])]


class WorkerPool:
    """At most `slots` workers, and the trust they have."""

    def __init__(
        self,
        workers: Workers,
        greeting: wire.Greeting,
        *,
        slots: int,
        timings: Timings,
        runtime: Runtime,
        lock: Mutex,
        command: Sequence[str] | None,
        env: Mapping[str, str] | None,
        emit: Callable[[Event], None],
    ) -> None:
        """Have no workers yet."""
        self._workers = workers
        self._greeting = greeting
        self._slots = slots
        self._timings = timings
        self._runtime = runtime
        self._lock = lock
        self._command = worker_command() if command is None else list(command)
        self._env = dict(os.environ if env is None else env)
        self._emit = emit
        self._failures = 0
        self._start_at = _NEVER
        self._was_trusted = False
        self.trusted_until = _NEVER
        self.hands: list[WorkerHandle] = []
        self.is_closing = False

    @property
    def is_complete(self) -> bool:
        """Whether nobody is missing."""
        return len(self.hands) == self._slots

    def ready(self) -> list[WorkerHandle]:
        """Return those that can be given something."""
        return [hand for hand in self.hands if hand.stage is WorkerStage.READY]

    # -- trust ---------------------------------------------------------------------------------------------------------

    def may_act(self, now: float) -> bool:
        """Whether what begins now would not have to be stopped at once."""
        return now < self.trusted_until - self._timings.stop_s

    def trust(self, until: float) -> None:
        """Let all act until then, and their guardians wait as long; never shorter than before."""
        self.trusted_until = max(self.trusted_until, until)
        self._was_trusted = True
        for hand in self.hands:
            self._extend(hand)

    def lose(self) -> None:
        """Kill them all. Fresh ones are started when there is trust again."""
        self.trusted_until = _NEVER
        for hand in self.hands:
            hand.lose()

    def suspend(self) -> list[Claim]:
        """Kill all but those that execute what may outlast trust; return what those execute."""
        self.trusted_until = _NEVER
        kept: list[Claim] = []
        for hand in self.hands:
            assignment = hand.suspend()
            if assignment is None:
                hand.lose()
            else:
                kept.append(assignment.claim)
        return kept

    def resume(self, hand: WorkerHandle) -> None:
        """Let a worker go on as before."""
        hand.is_suspended = False
        self._extend(hand)

    def lift(self, hand: WorkerHandle, assignment: Assignment, *, overdue_at: float) -> None:
        """Let what a worker executes outlast trust; its guardian ends it if nobody has, a while after its timeout."""
        term_at = overdue_at + self._timings.stop_s + _SLACK_S
        hand.lift(assignment, term_at=term_at, kill_at=term_at + self._timings.term_grace_s)

    def settle(self, hand: WorkerHandle) -> None:
        """Let trust bind a worker again, before it is given anything else: what was to outlast it has ended."""
        if hand.is_lifted:
            hand.is_lifted = hand.is_suspended = False
            self._extend(hand)

    def _extend(self, hand: WorkerHandle) -> None:
        term_at, kill_at = self._deadlines()
        hand.trust(self.trusted_until, term_at=term_at, kill_at=kill_at)

    def _deadlines(self) -> tuple[float, float]:
        """Return when a worker is to end; one that executes nothing may be started before there is trust."""
        until = self.trusted_until
        if until == _NEVER:
            until = self._runtime.monotonic() + START_WITHIN_S
        return until - self._timings.stop_s, until - self._timings.kill_s

    # -- coming and going ----------------------------------------------------------------------------------------------

    def recruit(self, now: float) -> None:
        """Start those that are missing, if it is time."""
        while not self.is_complete and self._may_start(now):
            hand = WorkerHandle(now)
            self.hands.append(hand)
            self._runtime.spawn("fencepost-worker-start", lambda hand=hand: self._start(hand))  # type: ignore[misc]

    def _may_start(self, now: float) -> bool:
        if self.is_closing or now < self._start_at or self._is_first_loading(now):
            return False
        return not self._was_trusted or self.may_act(now)

    def _is_first_loading(self, now: float) -> bool:
        """Whether nobody can be given anything yet, and somebody may be ready soon."""
        starting = [hand.since for hand in self.hands if hand.stage is WorkerStage.STARTING]
        return bool(starting) and not self.ready() and now < min(starting) + _ALONE_S

    def _start(self, hand: WorkerHandle) -> None:
        term_at, kill_at = self._deadlines()
        try:
            process = self._workers.start(self._command, env=self._env, term_at=term_at, kill_at=kill_at)
        except Exception as error:  # noqa: BLE001 - a place for a worker must not be lost to it
            with self._lock:
                self.hands.remove(hand)
                self._pause(hand, f"a worker could not be started: {error}")
            return
        with self._lock:
            hand.adopt(process)
            self._extend(hand)
            if self.is_closing:
                hand.kill()
        process.send(
            wire.greeting_message(self._greeting._replace(output=process.output))
        )  # last: before it, a worker has nothing to say that nobody would hear
        self._workers.wake()

    def is_late(self, hand: WorkerHandle, now: float) -> bool:
        """Whether a worker takes too long to load the application."""
        return hand.stage is WorkerStage.STARTING and hand.process is not None and now - hand.since >= START_WITHIN_S

    def welcome(self, hand: WorkerHandle) -> None:
        """Note that a worker has loaded the application."""
        if hand.stage is WorkerStage.STARTING:
            hand.stage = WorkerStage.READY
            self._failures = 0

    def dismiss(self, hand: WorkerHandle, ended: ProgramExit) -> None:
        """Let go of a worker that is gone."""
        self.hands.remove(hand)
        hand.close()
        is_useless = hand.trouble is not None or (hand.is_unused and ended.forced is None)
        if is_useless and not self.is_closing:
            self._pause(hand, hand.trouble or f"a worker {verdicts.description(ended)} before it had done anything")

    def _pause(self, hand: WorkerHandle, trouble: str) -> None:
        """Wait before the next start, longer each time. Those that were started together fail together: once."""
        if hand.since < self._start_at:
            return
        pause_s = min(_FIRST_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S)
        self._failures += 1
        self._start_at = self._runtime.monotonic() + pause_s
        self._emit(Event(What.RUNNER_WARNING, reason=trouble))
