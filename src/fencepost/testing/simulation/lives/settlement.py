"""The simulated installation: programs, each with places for its nodes, on one ledger or two; one database of effects.

Nodes have long leases (a ttl of days): so the whole world can leap over days in which nothing is due, and everybody who
lived before lives after it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import cast

from sqlalchemy import Engine

from fencepost.app.operations import Operations
from fencepost.core.rights import Scope
from fencepost.core.timings import Timings
from fencepost.engine.jobs import Jobs
from fencepost.engine.node_state import NodeSettings
from fencepost.leases.stores.memory import MemoryStore
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.migrations import NEWEST
from fencepost.schema.revisions import recorded
from fencepost.testing.simulation.bulk import BulkHost
from fencepost.testing.simulation.cluster import OPERATOR, SLOTS, Cluster, NodePlace, wake
from fencepost.testing.simulation.connections import SimulatedServer
from fencepost.testing.simulation.hub import Process
from fencepost.testing.simulation.jobs import JobSite
from fencepost.testing.simulation.ledger_file import SimFile, effects_file, life_files
from fencepost.testing.simulation.lives.jobs import Offer, Works, declare_load, declared
from fencepost.testing.simulation.lives.older import OLDER, OlderLedger
from fencepost.testing.simulation.lives.plan import Life, LifeJob
from fencepost.testing.simulation.runtime import Clock, SimRuntime
from fencepost.testing.simulation.weather import ELSEWHERE, LEDGER

_CALL_TIMEOUT_S = 5.0  # in clusters it is a third of the ttl, which is a week here


@dataclass(slots=True)
class Tenure:
    """A node from when it could work until it left, was killed or fell asleep; by the ledgers' clock."""

    process: Process
    place: int
    program: int
    jobs: tuple[LifeJob, ...]
    from_us: int
    to_us: int | None = None
    was_killed: bool = False
    noticed_us: int | None = None  # when the ledger was first seen to know that


class Settlement(Cluster):
    """Everything that is simulated in a life."""

    def __init__(self, plan: Life) -> None:
        self.life = plan
        self._files = life_files()[: 1 + max(program.ledger for program in plan.programs)]
        self._files[0].empty()
        super().__init__(plan, self._files[0])
        self.server.timeout_s = _CALL_TIMEOUT_S
        self.ledgers = [self.server, *(self._served(file, f"{LEDGER} 2") for file in self._files[1:])]
        for server in self.ledgers:
            server.file.now_us = self.store_clock.wall_us
        self.lease_stores = [self.leases, *(MemoryStore(self.store_runtime) for _ in self._files[1:])]
        self.version = [0] * len(plan.programs)
        self.works: dict[str, Works] = {}
        self.declared: dict[str, tuple[LifeJob, ...]] = {}  # by process; a deploy may come while one starts
        self.failures: list[Counter[int]] = [Counter() for _ in self.ledgers]
        self.offers: list[list[Offer]] = [[] for _ in self.ledgers]
        self.tenures: list[Tenure] = []
        self.has_old_zones: set[int] = set()
        self.older = set(plan.older)  # places that were not upgraded yet
        self.connections = [
            self.ledger_of(self._person(number), OPERATOR - number) for number in range(len(self.ledgers))
        ]

    def _person(self, number: int) -> SimRuntime:
        return SimRuntime(self.hub, Process(f"operator{number}", 98 - number), Clock(self.hub))

    def _served(self, file: SimFile, name: str) -> SimulatedServer:
        file.empty()
        plan = self.plan
        return SimulatedServer(
            self.hub, file, self.weather, latency_s=plan.latency_s, timeout_s=_CALL_TIMEOUT_S, name=name
        )

    def _server_elsewhere(self) -> SimulatedServer:
        file = effects_file()
        served = self._served(file, ELSEWHERE)
        file.fill(self.life.keys)
        return served

    @property
    def servers(self) -> dict[str, SimulatedServer]:
        """The databases, by the names that the weather has for them."""
        return {each.name: each for each in (*self.ledgers, cast("SimulatedServer", self.elsewhere))}

    def now_us(self) -> int:
        """The time by the clock of the databases."""
        return self.store_clock.wall_us()

    # -- which part of it a place sees -------------------------------------------------------------------------------

    def ledger_number(self, slot: int) -> int:
        """Return which ledger whoever is in a slot uses."""
        if slot <= OPERATOR:
            return OPERATOR - slot
        return self.life.programs[self.life.place_programs[slot]].ledger

    def url_of(self, slot: int) -> str:
        return f"{self.server_of(slot).file.url}?call_timeout={_CALL_TIMEOUT_S}s"

    def server_of(self, slot: int) -> SimulatedServer:
        return self.ledgers[self.ledger_number(slot)] if hasattr(self, "ledgers") else self.server

    def ledger_kind(self, slot: int) -> type[Ledger]:
        return OlderLedger if slot in getattr(self, "older", ()) else Ledger

    def leases_of(self, slot: int) -> MemoryStore:
        return self.lease_stores[self.ledger_number(slot)]

    def places_of(self, program: int) -> list[NodePlace]:
        """Return the places of a program."""
        return [place for place in self.places if self.life.place_programs[place.slot] == program]

    def jobs_at(self, slot: int) -> tuple[LifeJob, ...]:
        """Return the jobs that a process in this place would declare now."""
        program = self.life.place_programs[slot]
        versions = self.life.programs[program].versions
        jobs = versions[min(self.version[program], len(versions) - 1)]
        return tuple(job for job in jobs if not (job.is_zoned and slot in self.has_old_zones))

    def jobs_of(self, place: NodePlace, floor: JobSite, ledger: Ledger, far: Engine | None) -> Jobs:
        assert far is not None
        assert place.process is not None
        works = self.works[place.process.name] = Works(
            self.life.programs[self.life.place_programs[place.slot]].name,
            floor,
            far,
            self.failures[self.ledger_number(place.slot)],
            self.offers[self.ledger_number(place.slot)],
            self.now_us,
        )
        wanted = self.declared[place.process.name] = self.jobs_at(place.slot)
        jobs = Jobs([declared(job, works) for job in wanted if job.kind != "load"])
        for job in wanted:
            if job.kind == "load":
                stage = BulkHost(
                    jobs, ledger, place.generation, Operations(ledger, Scope.direct()), partial(wake, place)
                )
                declare_load(stage, job, works)
        return jobs

    def settings_of(self, place: NodePlace, runtime: SimRuntime) -> NodeSettings:
        program = self.life.programs[self.life.place_programs[place.slot]]
        return NodeSettings(
            name=runtime.process.name,
            version=OLDER if place.slot in self.older else recorded("simulated", NEWEST),
            timings=Timings.of(self.plan.ttl_s),
            queues=(program.queue,),
            slots=SLOTS,
            generation=place.generation,
            leader=self.plan.leader,
            poll_s=self.plan.poll_s,
            retention=self.life.retention,
        )
