"""One worker process in the hands of its runner: what it was given, how it stands, and how it is ended.

::

    STARTING ──ready──▶ READY ──stopped a claim, lost, shut down──▶ ENDING ──▶ (gone)
        │                 │                                                      ▲
        └─────────────────┴──────────────── died ───────────────────────────────┘

A worker whose claim was interrupted is not used again: an exception that comes from nowhere may have left a lock
taken or a connection half-way. It is replaced by a fresh one.

**Promises.** Of every claim it is known whether it started: the message was recalled, or the board never showed it, or
it did start. The runner serializes the calls.
"""

from __future__ import annotations

from enum import Enum

from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import ProgramExit, WorkerProcess
from fencepost.engine import wire
from fencepost.engine.runners.outcome import Outcome
from fencepost.engine.shared_page import SharedPage

LEAD_S = 0.01  # how much short work may wait inside a worker, so that it need not wait for us
_MOST = 256
_NOBODY = float("-inf")
_NEVER = float("inf")


class WorkerStage(Enum):
    """How far a worker is."""

    STARTING = "starting"
    READY = "ready"
    ENDING = "ending"


class Assignment:
    """A claim in the runner's hands: since when, who has it, and whether it was told to stop."""

    __slots__ = ("claim", "expected_s", "hand", "kill_at", "stop", "taken_at")

    def __init__(self, claim: Claim, taken_at: float) -> None:
        """Take a claim; nobody has it yet."""
        self.claim = claim
        self.taken_at = taken_at
        self.expected_s = 0.0
        self.hand: WorkerHandle | None = None
        self.stop: StopReason | None = None
        self.kill_at = _NEVER  # when its worker is killed, if it was told to stop


class WorkerHandle:
    """A worker process, or the intention to have one."""

    def __init__(self, now: float) -> None:
        """Intend to start a worker."""
        self.stage = WorkerStage.STARTING
        self.since = now
        self.process: WorkerProcess | None = None
        self.trouble: str | None = None
        self.in_hand: dict[int, Assignment] = {}
        self.interrupted: tuple[Assignment, Outcome] | None = None  # told to stop, and what it said to that
        self.is_stuck = False  # its present run takes long: give it nothing more
        self.is_lifted = False  # its present run, all it has, may outlast trust: its guardian waits for its timeout
        self.is_suspended = False  # that run has outlasted trust
        self.kill_at = _NEVER
        self._board: SharedPage | None = None
        self._load_s = 0.0
        self._last = 0  # serial number

    @property
    def is_unused(self) -> bool:
        """Whether it was never given anything."""
        return self._last == 0

    @property
    def load_s(self) -> float:
        """How long it will probably take for what it has."""
        return self._load_s

    @property
    def board(self) -> SharedPage:
        """What it shares with its worker."""
        if self._board is None:
            raise RuntimeError("this worker has not been started")
        return self._board

    def adopt(self, process: WorkerProcess) -> None:
        """Have a process that was started."""
        self.process = process
        self._board = SharedPage(process.shared)

    def ended(self) -> ProgramExit | None:
        """Return how the process ended, or None if it has not, or there is none."""
        return None if self.process is None else self.process.ended()

    def close(self) -> None:
        """Let go of a process that is gone."""
        if self.process is not None:
            self.board.release()
            self.process.close()

    # -- giving and taking back --------------------------------------------------------------------------------------

    def give(self, assignment: Assignment, expected_s: float) -> bool:
        """Send a claim to the worker, if it is free or will be in a moment; False if that is not so."""
        if self.in_hand and not self._has_time_for(expected_s):
            return False
        serial = self._last + 1
        if not self._send(wire.claim_message(serial, assignment.claim)):
            return False
        self._last = serial
        self.in_hand[serial] = assignment
        self._load_s += expected_s
        assignment.expected_s = expected_s
        assignment.hand = self
        return True

    def _has_time_for(self, expected_s: float) -> bool:
        return not self.is_stuck and self._load_s + expected_s <= LEAD_S and len(self.in_hand) < _MOST

    def _send(self, message: bytes) -> bool:
        process = self.process
        if process is None:
            return False
        if len(message) <= process.largest_message:
            return process.send(message)
        return not self.in_hand and process.send_aside(message)

    def take_back(self) -> list[Assignment]:
        """Recall what the worker has not taken yet."""
        if self.stage is not WorkerStage.READY or self.process is None or not self.in_hand:
            return []
        serials = map(wire.serial_of, self.process.recall())
        return [assignment for serial in serials if (assignment := self.done(serial)) is not None]

    def done(self, serial: int) -> Assignment | None:
        """Note that a claim has ended."""
        self.is_stuck = False
        assignment = self.in_hand.pop(serial, None)
        if assignment is None:
            return None
        if assignment.stop is not None:  # it ended by itself, before it heard
            self.kill_at = min((held.kill_at for held in self.in_hand.values()), default=_NEVER)
        self._load_s = self._load_s - assignment.expected_s if self.in_hand else 0.0
        assignment.hand = None
        return assignment

    # -- stopping ----------------------------------------------------------------------------------------------------

    def executing(self) -> tuple[Assignment, float] | None:
        """Return what the worker executes, and since when."""
        if self.process is None or not self.in_hand:
            return None
        serial, started_at = self.board.executing()
        assignment = self.in_hand.get(serial)
        return None if assignment is None else (assignment, started_at)

    def interrupt(self, assignment: Assignment, why: StopReason, *, kill_at: float) -> None:
        """Tell the worker to stop a claim that it has taken; whether it heeds that or not, it is dead by `kill_at`."""
        assignment.stop = why
        serial = next(serial for serial, held in self.in_hand.items() if held is assignment)
        if self.board.executing()[0] > serial:
            return  # it has ended, and its answer is on its way: what the worker is at now is another's
        assignment.kill_at = min(assignment.kill_at, kill_at)
        self.board.stop(serial, why)
        self.kill_at = min(self.kill_at, kill_at)
        if self.process is not None:
            self.process.poke()

    def trust(self, until: float, *, term_at: float, kill_at: float) -> None:
        """Let the worker act longer."""
        if self.process is None or self.stage is WorkerStage.ENDING or self.is_suspended:
            return
        self.board.trust(until)
        if not self.is_lifted:
            self.process.extend(term_at=term_at, kill_at=kill_at)

    def lift(self, assignment: Assignment, *, term_at: float, kill_at: float) -> None:
        """Let what the worker executes outlast trust; its supervisor's death still ends it.

        Only if the worker has nothing else: whatever it would turn to next may not.
        """
        if self.process is not None and list(self.in_hand.values()) == [assignment]:
            self.is_lifted = True
            self.process.extend(term_at=term_at, kill_at=kill_at)

    def suspend(self) -> Assignment | None:
        """Keep up a run that may outlast trust and was not told to stop; None if there is none."""
        assignment = next(iter(self.in_hand.values()), None) if self.is_lifted else None
        if assignment is None or assignment.stop is not None or self.stage is not WorkerStage.READY:
            return None
        self.is_suspended = True
        self.board.trust(_NOBODY)
        return assignment

    def lose(self) -> None:
        """The right to act is gone: end it now."""
        for assignment in self.in_hand.values():
            assignment.stop = StopReason.LOST
        if self.process is not None:
            self.board.lose()
            self.kill()

    def end(self, *, kill_at: float) -> None:
        """Tell the worker to end now; it has time for that until `kill_at`."""
        if self.process is not None:
            self.stage = WorkerStage.ENDING
            self.process.extend(term_at=0.0, kill_at=kill_at)

    def kill(self) -> None:
        """Kill the worker's group now."""
        if self.process is not None:
            self.stage = WorkerStage.ENDING
            self.kill_at = _NEVER
            self.process.kill()
