"""The runner's side of one worker process: its assignments, its stage, and how it is ended.

::

    STARTING ──ready──▶ READY ──stopped a claim, lost, shut down──▶ ENDING ──▶ (gone)
        │                 │                                                      ▲
        └─────────────────┴──────────────── died ───────────────────────────────┘

A worker whose claim was interrupted is not used again: an asynchronous exception may have left a lock held or a
connection in the middle of a statement. A new worker replaces it.

**Promises.** For every claim it is known whether it started: either its message was recalled, or the shared page never
showed it, or it started. The runner serializes the calls.
"""

from __future__ import annotations

from enum import Enum

from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import ProgramExit, WorkerProcess
from fencepost.engine import wire
from fencepost.engine.runners.outcome import Outcome
from fencepost.engine.shared_page import SharedPage

LEAD_S = 0.01  # how much short work may wait inside a worker, so that the worker need not wait for the runner
_MOST_ASSIGNMENTS = 256  # bounds what comes back at once when a worker dies
_NO_TRUST = float("-inf")
_NEVER = float("inf")


class WorkerStage(Enum):
    """The stage of a worker's life."""

    STARTING = "starting"
    READY = "ready"
    ENDING = "ending"


class Assignment:
    """A claim of the runner: since when it has it, which worker has it, and whether it was asked to stop."""

    __slots__ = ("claim", "expected_s", "handle", "kill_at", "stop", "taken_at")

    def __init__(self, claim: Claim, taken_at: float) -> None:
        """Take a claim; no worker has it yet."""
        self.claim = claim
        self.taken_at = taken_at
        self.expected_s = 0.0
        self.handle: WorkerHandle | None = None
        self.stop: StopReason | None = None
        self.kill_at = _NEVER  # when its worker is killed, if it was asked to stop


class WorkerHandle:
    """A worker process, or one that is about to be started."""

    def __init__(self, now: float) -> None:
        """Prepare; `adopt` takes the process when it has been started."""
        self.stage = WorkerStage.STARTING
        self.since = now
        self.process: WorkerProcess | None = None
        self.failure: str | None = None
        self.assignments: dict[int, Assignment] = {}
        self.interrupted: tuple[Assignment, Outcome] | None = None  # the claim that was interrupted, and its outcome
        self.is_stuck = False  # its current run takes long: send it no more claims
        self.is_exempt = False  # its only claim may outlast the trust: the guardian waits for the run's timeout
        self.is_suspended = False  # that run has outlasted the trust
        self.kill_at = _NEVER
        self._page: SharedPage | None = None
        self._load_s = 0.0
        self._last_serial = 0

    @property
    def is_unused(self) -> bool:
        """Whether no claim was ever sent to the worker."""
        return self._last_serial == 0

    @property
    def load_s(self) -> float:
        """How long the worker will probably take for the claims that it has."""
        return self._load_s

    @property
    def page(self) -> SharedPage:
        """The memory that is shared with the worker."""
        if self._page is None:
            raise RuntimeError("this worker has not been started")
        return self._page

    def adopt(self, process: WorkerProcess) -> None:
        """Take a process that was started."""
        self.process = process
        self._page = SharedPage(process.shared)

    def ended(self) -> ProgramExit | None:
        """Return how the process ended, or None if it has not, or there is none."""
        return None if self.process is None else self.process.ended()

    def close(self) -> None:
        """Release what belongs to a process that is gone."""
        if self.process is not None:
            self.page.release()
            self.process.close()

    # -- sending and recalling claims --------------------------------------------------------------------------------

    def give(self, assignment: Assignment, expected_s: float) -> bool:
        """Send a claim to the worker if it is free or soon will be. Return False if the claim was not sent."""
        if self.assignments and not self._has_time_for(expected_s):
            return False
        serial = self._last_serial + 1
        if not self._send(wire.claim_message(serial, assignment.claim)):
            return False
        self._last_serial = serial
        self.assignments[serial] = assignment
        self._load_s += expected_s
        assignment.expected_s = expected_s
        assignment.handle = self
        return True

    def _has_time_for(self, expected_s: float) -> bool:
        return not self.is_stuck and self._load_s + expected_s <= LEAD_S and len(self.assignments) < _MOST_ASSIGNMENTS

    def _send(self, message: bytes) -> bool:
        process = self.process
        if process is None:
            return False
        if len(message) <= process.largest_message:
            return process.send(message)
        return not self.assignments and process.send_aside(message)

    def take_back(self) -> list[Assignment]:
        """Recall the claims that the worker has not read yet."""
        if self.stage is not WorkerStage.READY or self.process is None or not self.assignments:
            return []
        serials = map(wire.serial_of, self.process.recall())
        return [assignment for serial in serials if (assignment := self.done(serial)) is not None]

    def done(self, serial: int) -> Assignment | None:
        """Remove a claim that has ended or was recalled."""
        self.is_stuck = False
        assignment = self.assignments.pop(serial, None)
        if assignment is None:
            return None
        if assignment.stop is not None:  # it ended by itself before it was interrupted
            self.kill_at = min((held.kill_at for held in self.assignments.values()), default=_NEVER)
        self._load_s = self._load_s - assignment.expected_s if self.assignments else 0.0
        assignment.handle = None
        return assignment

    # -- stopping ----------------------------------------------------------------------------------------------------

    def executing(self) -> tuple[Assignment, float] | None:
        """Return the claim that the worker executes, and since when."""
        if self.process is None or not self.assignments:
            return None
        serial, started_at = self.page.executing()
        assignment = self.assignments.get(serial)
        return None if assignment is None else (assignment, started_at)

    def interrupt(self, assignment: Assignment, why: StopReason, *, kill_at: float) -> None:
        """Ask the worker to stop a claim. The worker is killed at `kill_at` if the claim has not ended by then."""
        assignment.stop = why
        serial = next(serial for serial, held in self.assignments.items() if held is assignment)
        if self.page.executing()[0] > serial:
            return  # the claim has ended and its answer is on its way: the worker now executes a later claim
        assignment.kill_at = min(assignment.kill_at, kill_at)
        self.page.stop(serial, why)
        self.kill_at = min(self.kill_at, kill_at)
        if self.process is not None:
            self.process.poke()

    def trust(self, until: float, *, term_at: float, kill_at: float) -> None:
        """Extend the time until which the worker may act."""
        if self.process is None or self.stage is WorkerStage.ENDING or self.is_suspended:
            return
        self.page.trust(until)
        if not self.is_exempt:
            self.process.extend(term_at=term_at, kill_at=kill_at)

    def exempt(self, assignment: Assignment, *, term_at: float, kill_at: float) -> None:
        """Let the current run outlast the trust. The death of the supervisor still ends the worker.

        Nothing changes if the worker has other claims, because those must not outlast the trust.
        """
        if self.process is not None and list(self.assignments.values()) == [assignment]:
            self.is_exempt = True
            self.process.extend(term_at=term_at, kill_at=kill_at)

    def suspend(self) -> Assignment | None:
        """Suspend a run that may outlast the trust and was not asked to stop. Return None if there is none."""
        assignment = next(iter(self.assignments.values()), None) if self.is_exempt else None
        if assignment is None or assignment.stop is not None or self.stage is not WorkerStage.READY:
            return None
        self.is_suspended = True
        self.page.trust(_NO_TRUST)
        return assignment

    def lose(self) -> None:
        """Kill the worker, because the trust has ended."""
        for assignment in self.assignments.values():
            assignment.stop = StopReason.LOST
        if self.process is not None:
            self.page.lose()
            self.kill()

    def end(self, *, kill_at: float) -> None:
        """Ask the worker to end now. It is killed at `kill_at`."""
        if self.process is not None:
            self.stage = WorkerStage.ENDING
            self.process.extend(term_at=0.0, kill_at=kill_at)

    def kill(self) -> None:
        """Kill the worker's process group now."""
        if self.process is not None:
            self.stage = WorkerStage.ENDING
            self.kill_at = _NEVER
            self.process.kill()
