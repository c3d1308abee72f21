"""What a seed stands for: the cluster, its jobs, its clocks, and what goes wrong when.

The faults are a list, drawn before anything runs, so they can be printed, replayed and dropped one by one.
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
    ELSEWHERE,
    GATE,
    LATE,
    LEASES,
    LEDGER,
    SLOW,
    STALL,
)

FIRST_FAULT_AT = 1.5  # nodes have started by then, so faults meet nodes at work
JOBS = ("beat", "line", "pay", "post", "swap", "account")
LOAD = "load"  # the bulk job, which some clusters have
LOAD_EVERY_S = 5.0  # it comes due while things go wrong, which they do for 5.5 s at least
_ONE_IN = 6  # seeds: bulk work takes the place of another job, so most clusters have none
_STEPPED = 0.25  # the share of the seeds; these have no leader
SERVER_STEP = "server step"


@dataclass(frozen=True, slots=True)
class SimulatedFault:
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
class BulkWork:
    """The bulk work of a cluster: the keys of its input, what becomes of some of them, and how it is done.

    `is_far`: in another database than the ledger's. `is_settling`: what was written does not come up again when it is
    requested. `asked` is when it is requested. `unprocessable` and `unwritable` items are to be skipped.
    """

    keys: tuple[int, ...]
    filtered: frozenset[int]
    unprocessable: frozenset[int]
    unwritable: frozenset[int]
    chunk: int
    partitions: int
    over: str
    skip_limit: int
    read_ahead: int
    pace_s: float
    asked: tuple[float, ...]
    is_far: bool
    is_settling: bool
    is_scheduled: bool

    @property
    def is_hopeless(self) -> bool:
        """Whether more is to be put aside than it may."""
        return len(self.unprocessable | self.unwritable) > self.skip_limit


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
    faults: tuple[SimulatedFault, ...]
    bulk: BulkWork | None = None
    is_stepped: bool = False  # whether the clock of the lease store can be set

    @property
    def is_blind(self) -> bool:
        """Whether a node could not reach the ledger, so that the contact of all nodes is counted anew."""
        return any(fault.kind in ("outage", "cut", "shot", "pause", "stall") for fault in self.faults)


def scenario(seed: int, *, kinds: frozenset[str] | None = None) -> Scenario:
    """Draw the cluster that a seed stands for; `kinds` are the faults that may happen, if not all."""
    dice = Random(f"scenario {seed}")
    ttl_s = dice.choice((1.0, 1.0, 1.5, 2.0))
    nodes = dice.choice((2, 2, 2, 3))
    gate = dice.choice(("", "", "memory", "forgetful"))
    jobs = (*sorted(dice.sample(JOBS[:5], 2)), "account")
    bulk = bulk_work(seed)
    if bulk is not None:
        jobs = (jobs[0], "account", LOAD)
    faults_until = FIRST_FAULT_AT + 4 * ttl_s
    drawn = Drawing(dice, nodes=nodes, ttl_s=ttl_s, until=faults_until, gate=gate, jobs=jobs, bulk=bulk).faults()
    steps = server_steps(seed, until=faults_until)
    return Scenario(
        seed=seed,
        nodes=nodes,
        ttl_s=ttl_s,
        poll_s=dice.choice((0.5, 1.0, 2.0)),
        latency_s=dice.choice((0.0002, 0.001, 0.003)),
        jobs=jobs,
        gate=gate,
        leader=dice.random() < 0.2 and not steps,
        drifts=tuple(dice.uniform(-0.02, 0.02) for _ in range(nodes)),
        requests=tuple(sorted(dice.uniform(0.5, faults_until) for _ in range(dice.randint(2, 5)))),
        faults_until=faults_until,
        faults=tuple(
            fault
            for fault in sorted([*drawn, *steps], key=lambda each: each.at)
            if kinds is None or fault.kind in kinds
        ),
        bulk=bulk,
        is_stepped=bool(steps),
    )


def server_steps(seed: int, *, until: float) -> list[SimulatedFault]:
    """Draw how the clock of a seed's lease store is set; that of most cannot be."""
    dice = Random(f"server clock {seed}")
    if dice.random() >= _STEPPED:
        return []
    sizes_s = (1.0, 5.0, 60.0, 600.0, 3599.0)
    return [
        SimulatedFault(
            dice.uniform(FIRST_FAULT_AT, until), SERVER_STEP, amount=dice.choice((-1, 1)) * dice.choice(sizes_s)
        )
        for _ in range(dice.randint(1, 3))
    ]


def bulk_work(seed: int) -> BulkWork | None:
    """Draw the bulk work of a seed's cluster; most have none."""
    if seed % _ONE_IN != 1:
        return None
    dice = Random(f"bulk {seed}")
    keys = tuple(sorted(dice.sample(range(1, 100), dice.randint(6, 18))))
    odd = dice.sample(keys, 4)
    is_scheduled = dice.random() < 0.3
    is_settling = not is_scheduled and dice.random() < 0.5
    return BulkWork(
        keys=keys,
        filtered=frozenset(odd[:1]),
        unprocessable=frozenset(odd[1 : dice.randint(1, 3)]),
        unwritable=frozenset(odd[3 : dice.randint(3, 4)]),
        chunk=dice.randint(2, 4),
        partitions=dice.choice((1, 2, 3)),
        over=dice.choice(("nodes", "nodes", "nodes", "threads")),
        skip_limit=dice.choice((1, 5, 5, 5)),
        read_ahead=dice.choice((0, 1)),
        pace_s=dice.choice((0.03, 0.12)),
        asked=() if is_scheduled else tuple(dice.uniform(0.8, 4.0) for _ in range(1 if is_settling else 2)),
        is_far=dice.random() < 0.5,
        is_settling=is_settling,
        is_scheduled=is_scheduled,
    )


class Drawing:
    """Draws the faults of one seed."""

    def __init__(
        self,
        dice: Random,
        *,
        nodes: int,
        ttl_s: float,
        until: float,
        gate: str,
        jobs: tuple[str, ...],
        bulk: BulkWork | None = None,
    ) -> None:
        self._dice = dice
        self._nodes = nodes
        self._ttl_s = ttl_s
        self._until = until
        self._gate = gate
        self._jobs = jobs
        self._bulk = bulk
        self._places = (LEDGER, LEDGER, ELSEWHERE) if bulk is not None and bulk.is_far else (LEDGER, LEDGER)

    def faults(self) -> list[SimulatedFault]:
        """Return a few faults, in the order of their times."""
        kinds = list(_KINDS)
        weights = [_KINDS[kind][0] for kind in kinds]
        drawn = self._dice.choices(kinds, weights, k=self._dice.randint(2, 9))
        faults = [_KINDS[kind][1](self, self._dice.uniform(FIRST_FAULT_AT, self._until)) for kind in drawn]
        return sorted((fault for fault in faults if fault is not None), key=lambda fault: fault.at)

    def _slot(self) -> int:
        return self._dice.randrange(self._nodes)

    def _store(self) -> str:
        effects = [EFFECTS] if self._bulk is None else [EFFECTS, EFFECTS, EFFECTS]
        return self._dice.choice([LEDGER, LEDGER, *effects, LEASES, *([GATE] if self._gate else [])])

    def kill(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "kill", self._slot(), length_s=self._dice.choice((0.05, 0.5, 1.5)) * self._ttl_s)

    def pause(self, at: float) -> SimulatedFault:
        return SimulatedFault(
            at, "pause", self._slot(), length_s=self._dice.choice((0.4, 0.95, 1.2, 1.5, 2.2)) * self._ttl_s
        )

    def restart(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "restart", self._slot(), length_s=self._dice.choice((0.0, 0.3)))

    def step(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "clock step", amount=self._dice.choice((-3.0, -0.7, -0.1, 0.1, 0.9, 4.0, 15.0)))

    def drift(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "drift", self._slot(), amount=self._dice.uniform(-0.03, 0.03))

    def shot(self, at: float) -> SimulatedFault:
        how = self._dice.choice((BEFORE, AFTER, AFTER, LATE, SLOW))
        store = self._store()
        length_s = self._dice.choice((0.2, 0.6, 1.2)) if how == SLOW else 0.0
        is_at_commit = store in (LEDGER, EFFECTS) and self._dice.random() < 0.7
        word = f"{how} {store} {COMMIT}" if is_at_commit else f"{how} {store}"
        return SimulatedFault(at, "shot", self._slot(), length_s=length_s, word=word)

    def stall(self, at: float) -> SimulatedFault:
        word = f"{STALL} {self._dice.choice((LEDGER, LEDGER, EFFECTS))} {BEGIN}"
        return SimulatedFault(
            at, "stall", self._slot(), length_s=self._dice.choice((1.1, 1.4, 2.0)) * self._ttl_s, word=word
        )

    def outage(self, at: float) -> SimulatedFault:
        word = self._dice.choice((*self._places, LEASES, f"{LEDGER} {LEASES}"))
        return SimulatedFault(at, "outage", word=word, length_s=self._dice.choice((0.2, 0.6, 1.1, 1.6)) * self._ttl_s)

    def cut(self, at: float) -> SimulatedFault:
        word = self._dice.choice((*self._places[1:], LEASES, f"{LEDGER} {LEASES}"))
        return SimulatedFault(
            at, "cut", self._slot(), word=word, length_s=self._dice.choice((0.4, 1.1, 1.6, 2.2)) * self._ttl_s
        )

    def forget(self, at: float) -> SimulatedFault | None:
        return (
            SimulatedFault(at, "forget", amount=self._dice.choice((0.3, 1.0, 100.0)))
            if self._gate == "forgetful"
            else None
        )

    def revoke(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "revoke", self._slot())

    def deploy(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "deploy", self._slot())

    def press(self, at: float) -> SimulatedFault:
        word = self._dice.choice(("trigger", "cancel", "cancel", "retry", "hold"))
        length_s = self._dice.choice((0.5, 2.5)) if word == "hold" else 0.0
        scheduled = [job for job in self._jobs if job not in ("account", LOAD)]
        job = self._dice.choice(scheduled if word == "hold" else self._jobs)
        return SimulatedFault(
            at, "operator", word=f"{word} {job}", length_s=length_s, amount=float(self._dice.randrange(3))
        )


_KINDS: Mapping[str, tuple[int, Callable[[Drawing, float], SimulatedFault | None]]] = {
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
FAULTS = (*_KINDS, SERVER_STEP)
