"""What the seed of a life stands for: programs and their versions, how long history is kept, and what happens when.

A life is a row of *scenes*, a few virtual seconds each, with days between them in which nothing is due. What happens
in a scene is a list of acts, drawn before anything runs; `SimulatedFault.at` is the number of the scene.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from fencepost.ledger.pruning import DAY_S, Retention
from fencepost.testing.simulation.scenario import Scenario, SimulatedFault

ONE_IN = 30  # seeds: one of them is a life, the others are clusters
_FIRST = 5  # so no life takes the seed of a cluster with bulk work (1, 7, 13, …)
TTL_S = 7 * DAY_S  # the longest that is possible: nodes survive a jump over days (`_LEAP_S`)
ZONE = "Europe/Berlin"
# Mostly days, while lives last for weeks and months: what is pruned too early is missed.
_SHORT = Retention(
    succeeded=5 * DAY_S,
    dead=45 * DAY_S,
    cancelled=4 * DAY_S,
    skipped=5 * DAY_S,
    misfired=5 * DAY_S,
    journal=60 * DAY_S,
    nodes=10 * DAY_S,
    keys=5 * DAY_S,
)
# Known defects that lives have found and that are not fixed yet, each with its description: not drawn until then.
AWAITED: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class LifeJob:
    """A job of a program. `kind` is what it does; `every_d` in how many days it is due, 0: on request only.

    `is_zoned`: due once a week by the clocks of a zone, which has summer time.
    """

    name: str
    kind: str
    every_d: int = 0
    is_zoned: bool = False
    misfire: str = "once"
    overlap: str = "allow"
    queue: str = "default"

    @property
    def is_scheduled(self) -> bool:
        """Whether it comes due by itself."""
        return self.is_zoned or self.every_d > 0


@dataclass(frozen=True, slots=True)
class Program:
    """A program: which ledger it uses, how many nodes it has, and its jobs in each of its versions.

    The names of its jobs begin with `prefix`; what it writes is named after the program itself.
    """

    name: str
    ledger: int
    nodes: int
    versions: tuple[tuple[LifeJob, ...], ...]
    prefix: str
    queue: str = "default"


@dataclass(frozen=True, slots=True)
class Scene:
    """When a scene takes place: right before something is due, or `share` of the way to there."""

    is_due: bool
    share: float


@dataclass(frozen=True, slots=True)
class Life(Scenario):
    """An installation. Its `faults` are acts; `drifts` has one place for each node of each program."""

    programs: tuple[Program, ...] = ()
    scenes: tuple[Scene, ...] = ()
    retention: Retention = _SHORT
    keys: tuple[int, ...] = ()  # the input of bulk work
    older: tuple[int, ...] = ()  # places whose first process is of an older version

    @property
    def place_programs(self) -> tuple[int, ...]:
        """Which program each place belongs to."""
        return tuple(number for number, program in enumerate(self.programs) for _ in range(program.nodes))


def is_life(seed: int) -> bool:
    """Whether a seed stands for a life."""
    return seed % ONE_IN == _FIRST


def life(seed: int, *, kinds: frozenset[str] | None = None) -> Life:
    """Draw the life that a seed stands for; `kinds` are the acts that may happen, if not all."""
    dice = Random(f"life {seed}")
    programs = _programs(dice)
    places = sum(program.nodes for program in programs)
    scenes = tuple(Scene(dice.random() < 0.65, dice.uniform(0.2, 0.8)) for _ in range(dice.randint(12, 20)))
    drawn = Acts(dice, programs=programs, places=places, scenes=len(scenes)).drawn()
    return Life(
        seed=seed,
        nodes=places,
        ttl_s=TTL_S,
        poll_s=dice.choice((2.0, 5.0)),
        latency_s=0.0005,
        jobs=(),
        gate="",
        leader=False,  # a killed leader keeps the lead until its ttl, of days, is over
        drifts=tuple(dice.uniform(-1e-5, 1e-5) for _ in range(places)),
        requests=(),
        faults_until=float(len(scenes)),
        faults=tuple(fault for fault in drawn if kinds is None or fault.kind in kinds),
        programs=programs,
        scenes=scenes,
        retention=dice.choice((_SHORT, _SHORT, Retention())),
        keys=tuple(range(1, dice.randint(5, 9))),
        older=_older(seed, programs),
    )


def _older(seed: int, programs: tuple[Program, ...]) -> tuple[int, ...]:
    """Draw the places that an upgrade begins with. Older versions do not tell two ledgers apart."""
    dice = Random(f"older {seed}")
    places = sum(program.nodes for program in programs)
    if places < 2 or any(program.ledger for program in programs) or dice.random() < 0.3:
        return ()
    return tuple(sorted(dice.sample(range(places), dice.randint(1, places))))


# -- programs and their versions ---------------------------------------------------------------------------------------


def _programs(dice: Random) -> tuple[Program, ...]:
    how = dice.choice(("alone", "beside", "beside", "apart", "apart"))
    first = Program("a", 0, dice.choice((1, 2)), _versions(dice, "a", "default"), "a")
    if how == "alone":
        return (first,)
    queue = dice.choice(("default", "b"))
    if how == "beside":
        return first, Program("b", 0, 1, _versions(dice, "b", queue), "b", queue)
    # Another installation of the same program, with data of its own: its jobs have the same names.
    versions = dice.choice((first.versions, _versions(dice, "a", "default")))
    return first, Program("b", 1, 1, versions, "a")


def _versions(dice: Random, program: str, queue: str) -> tuple[tuple[LifeJob, ...], ...]:
    on_request = [LifeJob(f"{program}-{kind}", kind, queue=queue) for kind in ("ask", "long", "load")]
    jobs = (
        *on_request,
        _tick(dice, f"{program}-tick", queue),
        replace(_tick(dice, f"{program}-zone", queue), is_zoned=True),
    )
    found = [jobs]
    for number in range(1, 5):
        jobs = _changed(dice, jobs, number)
        found.append(jobs)
    return tuple(found)


def _tick(dice: Random, name: str, queue: str) -> LifeJob:
    return LifeJob(
        name,
        "tick",
        every_d=dice.choice((2, 3, 7, 10)),
        misfire=dice.choice(("once", "once", "all", "skip")),
        overlap=dice.choice(("allow", "forbid", "queue")),
        queue=queue,
    )


def _changed(dice: Random, jobs: tuple[LifeJob, ...], number: int) -> tuple[LifeJob, ...]:
    """Return the next version: a job is added, removed, renamed, or due at other times."""
    ticks = [job for job in jobs if job.is_scheduled]
    one = dice.choice(ticks) if ticks else None
    match dice.choice(("add", "remove", "rename", "change", "same")):
        case "remove" if one is not None:
            return tuple(job for job in jobs if job is not one)
        case "rename" if one is not None:
            return tuple(replace(job, name=f"{job.name}-{number}") if job is one else job for job in jobs)
        case "change" if one is not None:
            changed = replace(one, every_d=one.every_d % 3 + 2, is_zoned=False)
            return tuple(changed if job is one else job for job in jobs)
        case "same":
            return jobs
    base = jobs[0].name.partition("-")[0]
    return (*jobs, _tick(dice, f"{base}-new{number}", jobs[0].queue))


# -- what happens ------------------------------------------------------------------------------------------------------


class Acts:
    """Draws the acts of one life."""

    def __init__(self, dice: Random, *, programs: tuple[Program, ...], places: int, scenes: int) -> None:
        self._dice = dice
        self._programs = programs
        self._places = places
        self._scenes = scenes

    def drawn(self) -> list[SimulatedFault]:
        """Return a few acts for each scene, in their order."""
        found: list[SimulatedFault] = []
        kinds = [kind for kind in _KINDS if kind not in AWAITED]
        weights = [_KINDS[kind][0] for kind in kinds]
        for scene in range(1, self._scenes):
            chosen = self._dice.choices(kinds, weights, k=self._dice.choice((0, 1, 2, 2, 3)))
            found += [_KINDS[kind][1](self, float(scene)) for kind in chosen]
        return found

    def _slot(self) -> int:
        return self._dice.randrange(self._places)

    def _program(self) -> int:
        return self._dice.randrange(len(self._programs))

    def restart(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "restart", self._slot())

    def kill(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "kill", self._slot(), amount=float(self._dice.choice((0, 0, 1, 4))))

    def sleep(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "sleep", self._slot(), amount=float(self._dice.choice((1, 1, 2))))

    def deploy(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "deploy", self._program())

    def winter(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "winter", amount=float(self._dice.choice((20, 50, 200, 400))))

    def down(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "down", self._program(), amount=float(self._dice.choice((1, 3, 6))))

    def rolling(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "rolling", self._program(), amount=float(self._dice.randint(3, 4)))

    def old_zones(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "old zones", self._slot())

    def request(self, at: float) -> SimulatedFault:
        return SimulatedFault(
            at, "request", self._program(), word=self._dice.choice(("ask", "ask", "load", "load", "load", "long"))
        )

    def repeat(self, at: float) -> SimulatedFault:
        word = self._dice.choice(("load", "load", ""))
        return SimulatedFault(at, "repeat", self._program(), word=word, amount=self._dice.random())

    def cancel(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "cancel", self._program(), amount=self._dice.random())

    def reprocess(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "reprocess", self._program())

    def ids_behind(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "ids behind", self._program(), amount=float(self._dice.choice((1, 5, 50))))

    def restore(self, at: float) -> SimulatedFault:
        return SimulatedFault(at, "restore", self._program())

    def step(self, at: float) -> SimulatedFault:
        size_s = self._dice.choice((1.0, 5.0, 60.0, 600.0, 3599.0))
        return SimulatedFault(at, "clock step", amount=self._dice.choice((-1, 1)) * size_s)


_KINDS: Mapping[str, tuple[int, Callable[[Acts, float], SimulatedFault]]] = {
    "restart": (3, Acts.restart),
    "kill": (3, Acts.kill),
    "sleep": (1, Acts.sleep),
    "deploy": (3, Acts.deploy),
    "down": (2, Acts.down),
    "winter": (1, Acts.winter),
    "rolling": (1, Acts.rolling),
    "old zones": (1, Acts.old_zones),
    "request": (8, Acts.request),
    "repeat": (7, Acts.repeat),
    "cancel": (2, Acts.cancel),
    "reprocess": (3, Acts.reprocess),
    "clock step": (1, Acts.step),
    "ids behind": (1, Acts.ids_behind),
    "restore": (2, Acts.restore),
}
ACTS = tuple(_KINDS)
