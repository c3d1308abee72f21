"""The worker processes of a runner: how many there are, when they are started, and until when they may act.

A worker is started whenever one is missing, unless the trust has ended: then it could execute nothing, and would be
ended again. While no worker is ready, the first one loads the application alone for up to `_FIRST_ALONE_S`: if several
load it at the same time, all of them are ready late, and due runs wait meanwhile. After a worker that cannot load the
application, or dies before it received a claim, the next start is delayed, longer each time.

The lock belongs to the runner, and all methods are called with it held. Only the start of a process, which takes a
moment, runs without it on a separate task.
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

START_WITHIN_S = 60.0  # large applications take tens of seconds to import on a busy machine
_FIRST_ALONE_S = 3.0  # how long the other starts wait for the first worker to be ready
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0  # doubled with each failure: a start costs the loading of the application
_NEVER = float("-inf")
_SLACK_S = 1.0  # the runner itself ends the run first; the guardian only if that fails
_WORKER = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from fencepost.engine.worker import main; main()"


def worker_command() -> list[str]:
    """Return the command that starts a worker: this Python, with the module path of this process."""
    return [sys.executable, "-c", _WORKER, json.dumps([os.path.abspath(folder) for folder in sys.path])]


class WorkerPool:
    """At most `slots` workers, and until when they may act."""

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
        """Start empty; `start_missing` starts the workers."""
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
        self.handles: list[WorkerHandle] = []
        self.is_closing = False

    @property
    def is_complete(self) -> bool:
        """Whether no worker is missing."""
        return len(self.handles) == self._slots

    def ready(self) -> list[WorkerHandle]:
        """Return the workers that can take claims."""
        return [handle for handle in self.handles if handle.stage is WorkerStage.READY]

    # -- trust ---------------------------------------------------------------------------------------------------------

    def may_act(self, now: float) -> bool:
        """Whether a run that starts now would not have to be stopped at once."""
        return now < self.trusted_until - self._timings.stop_s

    def trust(self, until: float) -> None:
        """Extend (never shorten) the time until which the workers may act, and the deadlines of their guardians."""
        self.trusted_until = max(self.trusted_until, until)
        self._was_trusted = True
        for handle in self.handles:
            self._extend(handle)

    def lose(self) -> None:
        """Kill all workers. New ones are started when there is trust again."""
        self.trusted_until = _NEVER
        for handle in self.handles:
            handle.lose()

    def suspend(self) -> list[Claim]:
        """Kill all workers except those whose run may outlast the trust. Return the claims of those."""
        self.trusted_until = _NEVER
        kept: list[Claim] = []
        for handle in self.handles:
            assignment = handle.suspend()
            if assignment is None:
                handle.lose()
            else:
                kept.append(assignment.claim)
        return kept

    def resume(self, handle: WorkerHandle) -> None:
        """End the suspension of a worker."""
        handle.is_suspended = False
        self._extend(handle)

    def exempt(self, handle: WorkerHandle, assignment: Assignment, *, overdue_at: float) -> None:
        """Let a worker's current run outlast the trust. Its guardian ends it after its timeout if nothing else did."""
        term_at = overdue_at + self._timings.stop_s + _SLACK_S
        handle.exempt(assignment, term_at=term_at, kill_at=term_at + self._timings.term_grace_s)

    def end_exemption(self, handle: WorkerHandle) -> None:
        """Apply the trust to a worker again when its exempt run has ended, before it receives another claim."""
        if handle.is_exempt:
            handle.is_exempt = handle.is_suspended = False
            self._extend(handle)

    def _extend(self, handle: WorkerHandle) -> None:
        term_at, kill_at = self._deadlines()
        handle.trust(self.trusted_until, term_at=term_at, kill_at=kill_at)

    def _deadlines(self) -> tuple[float, float]:
        """Return when a guardian ends its worker. Before there is trust, a worker has `START_WITHIN_S` to start."""
        until = self.trusted_until
        if until == _NEVER:
            until = self._runtime.monotonic() + START_WITHIN_S
        return until - self._timings.stop_s, until - self._timings.kill_s

    # -- starting and removing workers ---------------------------------------------------------------------------------

    def start_missing(self, now: float) -> None:
        """Start the missing workers, unless a start has to wait."""
        while not self.is_complete and self._may_start(now):
            handle = WorkerHandle(now)
            self.handles.append(handle)
            self._runtime.spawn("fencepost-worker-start", lambda handle=handle: self._start(handle))  # type: ignore[misc]

    def _may_start(self, now: float) -> bool:
        if self.is_closing or now < self._start_at or self._is_first_loading(now):
            return False
        return not self._was_trusted or self.may_act(now)

    def _is_first_loading(self, now: float) -> bool:
        """Whether no worker is ready yet, and one may be ready soon."""
        starting = [handle.since for handle in self.handles if handle.stage is WorkerStage.STARTING]
        return bool(starting) and not self.ready() and now < min(starting) + _FIRST_ALONE_S

    def _start(self, handle: WorkerHandle) -> None:
        term_at, kill_at = self._deadlines()
        try:
            process = self._workers.start(self._command, env=self._env, term_at=term_at, kill_at=kill_at)
        except Exception as error:  # noqa: BLE001 - the slot must become free again, whatever the error is
            with self._lock:
                self.handles.remove(handle)
                self._pause(handle, f"a worker could not be started: {error}")
            return
        with self._lock:
            handle.adopt(process)
            self._extend(handle)
            if self.is_closing:
                handle.kill()
        greeting = self._greeting._replace(output=process.output)
        process.send(wire.greeting_message(greeting))  # last: a worker sends nothing before it has read the greeting
        self._workers.wake()

    def is_late(self, handle: WorkerHandle, now: float) -> bool:
        """Whether a worker takes too long to load the application."""
        return (
            handle.stage is WorkerStage.STARTING and handle.process is not None and now - handle.since >= START_WITHIN_S
        )

    def mark_ready(self, handle: WorkerHandle) -> None:
        """Record that a worker has loaded the application."""
        if handle.stage is WorkerStage.STARTING:
            handle.stage = WorkerStage.READY
            self._failures = 0

    def remove(self, handle: WorkerHandle, ended: ProgramExit) -> None:
        """Remove a worker that is gone."""
        self.handles.remove(handle)
        handle.close()
        is_useless = handle.failure is not None or (handle.is_unused and ended.forced is None)
        if is_useless and not self.is_closing:
            self._pause(handle, handle.failure or f"a worker {verdicts.description(ended)} before it received a run")

    def _pause(self, handle: WorkerHandle, failure: str) -> None:
        """Delay the next start, longer each time. Workers that were started together count as one failure."""
        if handle.since < self._start_at:
            return
        pause_s = min(_FIRST_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S)
        self._failures += 1
        self._start_at = self._runtime.monotonic() + pause_s
        self._emit(Event(What.RUNNER_WARNING, reason=failure))
