"""The kinds of faults, and the faults that were injected."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fencepost.proof.chaos.proxy import Address, Mode

STILL = float("inf")


class FaultKind(StrEnum):
    """The kinds of faults. `AWAY` is not a fault: the actor left, as for a deploy, and is not back yet."""

    KILL_NODE = "kill node"
    KILL_WORKER = "kill worker"
    KILL_CONTENDER = "kill contender"
    PAUSE_NODE = "pause node"
    PAUSE_WORKER = "pause worker"
    PAUSE_CONTENDER = "pause contender"
    FREEZE_NODE = "freeze node"
    CUT = "cut"
    HOLD = "hold"
    BLACK_HOLE = "black hole"
    LOST_REPLIES = "lost replies"
    REFUSE = "refuse"
    OUTAGE = "outage"
    RESTART = "restart"
    PROMOTION = "promotion"
    AWAY = "away"


MODES = {
    FaultKind.HOLD: Mode.HOLD,
    FaultKind.BLACK_HOLE: Mode.BLACK_HOLE,
    FaultKind.LOST_REPLIES: Mode.LOST_REPLIES,
    FaultKind.REFUSE: Mode.REFUSE,
}
KILLS = frozenset({FaultKind.KILL_NODE, FaultKind.KILL_WORKER, FaultKind.KILL_CONTENDER})
ENDS = KILLS | {FaultKind.AWAY}
STOPS = frozenset({FaultKind.PAUSE_NODE, FaultKind.FREEZE_NODE, FaultKind.PAUSE_CONTENDER})
EVERYBODY = frozenset({FaultKind.OUTAGE, FaultKind.RESTART, FaultKind.PROMOTION})
# Relative to each other. What hits everybody is rare: takeovers meanwhile are not compared with the bound.
LIKELIHOOD = {
    FaultKind.KILL_NODE: 3.0,
    FaultKind.KILL_WORKER: 3.0,
    FaultKind.KILL_CONTENDER: 3.0,
    FaultKind.PAUSE_NODE: 2.0,
    FaultKind.PAUSE_WORKER: 1.0,
    FaultKind.PAUSE_CONTENDER: 3.0,
    FaultKind.FREEZE_NODE: 2.0,
    FaultKind.CUT: 3.0,
    FaultKind.HOLD: 1.5,
    FaultKind.BLACK_HOLE: 1.5,
    FaultKind.LOST_REPLIES: 1.5,
    FaultKind.REFUSE: 1.0,
    FaultKind.OUTAGE: 0.3,
    FaultKind.RESTART: 0.5,
    FaultKind.PROMOTION: 0.3,
}


@dataclass(slots=True)
class Fault:
    """One fault: its kind, its target and its time. `over_at` is when the target had recovered."""

    kind: FaultKind
    target: str
    at: float
    until: float
    pid: int = 0
    over_at: float = STILL

    @property
    def hits_everybody(self) -> bool:
        """Whether it concerned all actors."""
        return self.kind in EVERYBODY

    def __str__(self) -> str:
        lasting = f" for {self.until - self.at:.1f} s" if self.until > self.at else ""
        return f"{self.kind} {self.target.removeprefix('node ')}{lasting}"


class HarmableServer(Protocol):
    """A server that the caller of chaos owns, and that may therefore be killed."""

    @property
    def line(self) -> str:
        """What it is to chaos: ``ledger`` or ``store``; one that is both is the ledger."""
        ...

    def is_ready(self) -> bool:
        """Whether it may be killed now."""
        ...

    def restart(self) -> None:
        """Kill the server and start it again on the same address; return when it answers."""
        ...

    def can_promote(self) -> bool:
        """Whether there is another server that could take its place now."""
        ...

    def promote(self) -> Address:
        """Kill the server, let another take its place, and return where that one is."""
        ...
