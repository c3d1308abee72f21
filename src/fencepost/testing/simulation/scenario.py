"""What a seed stands for: the cluster, its jobs, its clocks, and what goes wrong when.

The faults are a list, drawn before anything runs; so they can be told, replayed and dropped one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from fencepost.testing.simulation.weather import (
    AFTER,
    BEFORE,
    BEGIN,
    COMMIT,
    EFFECTS,
    GATE,
    LATE,
    LEASES,
    LEDGER,
    SLOW,
    STALL,
)

FIRST_FAULT_AT = 1.5
JOBS = ("beat", "line", "pay", "post", "swap", "account")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at a time. `slot` is the node it happens to, `word` and `amount` say more."""

    at: float
    kind: str
    slot: int = 0
    length_s: float = 0.0
    word: str = ""
    amount: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Write it down, without what is as usual."""
        usual = {"slot": 0, "length_s": 0.0, "word": "", "amount": 0.0}
        return {name: value for name, value in asdict(self).items() if value != usual.get(name)}

    @property
    def until(self) -> float:
        """When it is over."""
        return self.at + self.length_s


@dataclass(frozen=True, slots=True)
class Scenario:
    """One cluster."""

    seed: int
    nodes: int
    ttl_s: float
    poll_s: float
    latency_s: float
    jobs: tuple[str, ...]
    gate: str  # "", "memory" or "forgetful"
    leader: bool
    drifts: tuple[float, ...]
    requests: tuple[float, ...]
    faults_until: float
    faults: tuple[Fault, ...]

    @property
    def is_blind(self) -> bool:
        """Whether somebody could not reach the ledger, so that everybody's contact is counted anew."""
        return any(fault.kind in ("outage", "cut", "shot", "pause", "stall") for fault in self.faults)


def scenario(seed: int, *, kinds: frozenset[str] | None = None) -> Scenario:
    """Draw the cluster that a seed stands for; `kinds` are the faults that may happen, if not all."""
    dice = Random(f"scenario {seed}")
    ttl_s = dice.choice((1.0, 1.0, 1.5, 2.0))
    nodes = dice.choice((2, 2, 2, 3))
    gate = dice.choice(("", "", "memory", "forgetful"))
    jobs = (*sorted(dice.sample(JOBS[:5], 2)), "account")
    faults_until = FIRST_FAULT_AT + 4 * ttl_s
    drawn = Drawing(dice, nodes=nodes, ttl_s=ttl_s, until=faults_until, gate=gate, jobs=jobs).faults()
    return Scenario(
        seed=seed,
        nodes=nodes,
        ttl_s=ttl_s,
        poll_s=dice.choice((0.5, 1.0, 2.0)),
        latency_s=dice.choice((0.0002, 0.001, 0.003)),
        jobs=jobs,
        gate=gate,
        leader=dice.random() < 0.2,
        drifts=tuple(dice.uniform(-0.02, 0.02) for _ in range(nodes)),
        requests=tuple(sorted(dice.uniform(0.5, faults_until) for _ in range(dice.randint(2, 5)))),
        faults_until=faults_until,
        faults=tuple(fault for fault in drawn if kinds is None or fault.kind in kinds),
    )


class Drawing:
    """Draws the faults of one seed."""

    def __init__(
        self, dice: Random, *, nodes: int, ttl_s: float, until: float, gate: str, jobs: tuple[str, ...]
    ) -> None:
        self._dice = dice
        self._nodes = nodes
        self._ttl_s = ttl_s
        self._until = until
        self._gate = gate
        self._jobs = jobs

    def faults(self) -> list[Fault]:
        """Return a few faults, in the order of their times."""
        kinds = list(_KINDS)
        weights = [_KINDS[kind][0] for kind in kinds]
        drawn = self._dice.choices(kinds, weights, k=self._dice.randint(2, 9))
        faults = [_KINDS[kind][1](self, self._dice.uniform(FIRST_FAULT_AT, self._until)) for kind in drawn]
        return sorted((fault for fault in faults if fault is not None), key=lambda fault: fault.at)

    def _slot(self) -> int:
        return self._dice.randrange(self._nodes)

    def _store(self) -> str:
        return self._dice.choice((LEDGER, LEDGER, EFFECTS, LEASES, *([GATE] if self._gate else [])))

    def kill(self, at: float) -> Fault:
        return Fault(at, "kill", self._slot(), length_s=self._dice.choice((0.05, 0.5, 1.5)) * self._ttl_s)

    def pause(self, at: float) -> Fault:
        return Fault(at, "pause", self._slot(), length_s=self._dice.choice((0.4, 0.95, 1.2, 1.5, 2.2)) * self._ttl_s)

    def restart(self, at: float) -> Fault:
        return Fault(at, "restart", self._slot(), length_s=self._dice.choice((0.0, 0.3)))

    def step(self, at: float) -> Fault:
        return Fault(at, "clock step", amount=self._dice.choice((-3.0, -0.7, -0.1, 0.1, 0.9, 4.0, 15.0)))

    def drift(self, at: float) -> Fault:
        return Fault(at, "drift", self._slot(), amount=self._dice.uniform(-0.03, 0.03))

    def shot(self, at: float) -> Fault:
        how = self._dice.choice((BEFORE, AFTER, AFTER, LATE, SLOW))
        store = self._store()
        length_s = self._dice.choice((0.2, 0.6, 1.2)) if how == SLOW else 0.0
        is_at_commit = store in (LEDGER, EFFECTS) and self._dice.random() < 0.7
        word = f"{how} {store} {COMMIT}" if is_at_commit else f"{how} {store}"
        return Fault(at, "shot", self._slot(), length_s=length_s, word=word)

    def stall(self, at: float) -> Fault:
        word = f"{STALL} {self._dice.choice((LEDGER, LEDGER, EFFECTS))} {BEGIN}"
        return Fault(at, "stall", self._slot(), length_s=self._dice.choice((1.1, 1.4, 2.0)) * self._ttl_s, word=word)

    def outage(self, at: float) -> Fault:
        word = self._dice.choice((LEDGER, LEDGER, LEASES, f"{LEDGER} {LEASES}"))
        return Fault(at, "outage", word=word, length_s=self._dice.choice((0.2, 0.6, 1.1, 1.6)) * self._ttl_s)

    def cut(self, at: float) -> Fault:
        word = self._dice.choice((LEDGER, LEASES, f"{LEDGER} {LEASES}"))
        return Fault(at, "cut", self._slot(), word=word, length_s=self._dice.choice((0.4, 1.1, 1.6, 2.2)) * self._ttl_s)

    def forget(self, at: float) -> Fault | None:
        return Fault(at, "forget", amount=self._dice.choice((0.3, 1.0, 100.0))) if self._gate == "forgetful" else None

    def revoke(self, at: float) -> Fault:
        return Fault(at, "revoke", self._slot())

    def deploy(self, at: float) -> Fault:
        return Fault(at, "deploy", self._slot())

    def press(self, at: float) -> Fault:
        word = self._dice.choice(("trigger", "cancel", "cancel", "retry", "hold"))
        length_s = self._dice.choice((0.5, 2.5)) if word == "hold" else 0.0
        scheduled = [job for job in self._jobs if job != "account"]
        job = self._dice.choice(scheduled if word == "hold" else self._jobs)
        return Fault(at, "operator", word=f"{word} {job}", length_s=length_s, amount=float(self._dice.randrange(3)))


_KINDS: Mapping[str, tuple[int, Callable[[Drawing, float], Fault | None]]] = {
    "kill": (5, Drawing.kill),
    "pause": (5, Drawing.pause),
    "restart": (2, Drawing.restart),
    "clock step": (1, Drawing.step),
    "drift": (1, Drawing.drift),
    "shot": (8, Drawing.shot),
    "stall": (6, Drawing.stall),
    "outage": (2, Drawing.outage),
    "cut": (3, Drawing.cut),
    "forget": (3, Drawing.forget),
    "revoke": (3, Drawing.revoke),
    "deploy": (1, Drawing.deploy),
    "operator": (4, Drawing.press),
}
FAULTS = tuple(_KINDS)
