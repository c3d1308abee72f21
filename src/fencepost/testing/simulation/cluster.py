"""The simulated cluster: places for nodes, what is in them now, and the stores that they share.

A place keeps its machine, with its clock, while processes come and go in it. A node is put together as an application
does it (`fencepost.app.composing`), from the same parts, on a simulated Runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Engine, QueuePool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from fencepost.app.operations import Operations
from fencepost.core.events import Event
from fencepost.core.identity import canonical_json
from fencepost.core.rights import Scope
from fencepost.core.runs import Claim
from fencepost.core.schedule import schedule_to_json
from fencepost.core.timings import Timings
from fencepost.engine.context import RunContext
from fencepost.engine.engines import engine_of
from fencepost.engine.invoke import invoke
from fencepost.engine.jobs import Jobs
from fencepost.engine.node import Node
from fencepost.engine.node_state import NodeSettings, NodeState
from fencepost.engine.requesting import on_record
from fencepost.engine.runners.outcome import Outcome
from fencepost.engine.runners.thread import ThreadRunner
from fencepost.errors import FencepostError
from fencepost.leases.locks import Locks
from fencepost.leases.stores.memory import MemoryStore
from fencepost.ledger.deploys import sync_code
from fencepost.ledger.jobs import register
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.migrations import NEWEST
from fencepost.ledger.schedule_rows import NewSchedule
from fencepost.proof.history import History
from fencepost.schema.revisions import recorded
from fencepost.testing.simulation.bulk import BulkHost, declare_load
from fencepost.testing.simulation.connections import SimDialect, SimulatedServer
from fencepost.testing.simulation.hub import Hub, Process
from fencepost.testing.simulation.jobs import JobSite, jobs_on
from fencepost.testing.simulation.lease_stores import ForgetfulStore, Way
from fencepost.testing.simulation.ledger_file import SimFile, effects_file
from fencepost.testing.simulation.runtime import Clock, SimRuntime, StoreRuntime
from fencepost.testing.simulation.scenario import LOAD, Scenario
from fencepost.testing.simulation.sim_url import sim_url
from fencepost.testing.simulation.stepped_store import SteppedRuntime, SteppedStore, SteppedWay
from fencepost.testing.simulation.weather import EFFECTS, ELSEWHERE, GATE, LEASES, Weather

OPERATOR = -1
SLOTS = 3  # runs of a node at once; what else is due has to wait
_GRACE_S = 1.0  # some jobs take longer: their runs are interrupted
_TRY_AGAIN_AFTER_S = 0.3  # a process that could not start is started again, as by a supervisor


class NodePlace:
    """Where one node runs."""

    def __init__(self, slot: int, clock: Clock) -> None:
        self.slot = slot
        self.clock = clock
        self.lives = 0
        self.generation = 0
        self.process: Process | None = None
        self.node: Node | None = None
        self.close: Callable[[], None] = lambda: None

    @property
    def is_up(self) -> bool:
        """Whether a process lives here."""
        return self.process is not None and not self.process.is_dead


class Cluster:
    """Everything that is simulated."""

    def __init__(self, plan: Scenario, file: SimFile) -> None:
        self.plan = plan
        self.hub = hub = Hub(plan.seed)
        self.history = History()
        self.weather = Weather()
        self.events: Counter[str] = Counter()
        self.emitted: list[tuple[float, str, Event]] = []
        self.server = SimulatedServer(hub, file, self.weather, latency_s=plan.latency_s, timeout_s=plan.ttl_s / 3)
        self.elsewhere = self._server_elsewhere()
        self.store_clock = Clock(hub)
        for server in (self.server, self.elsewhere):
            if server is not None:
                server.file.now_us = self.store_clock.wall_us
        world = Process("world", 0)
        self.store_runtime = StoreRuntime(hub, world, self.store_clock)
        self.leases = (
            SteppedStore(SteppedRuntime(hub, world, self.store_clock))
            if plan.is_stepped
            else MemoryStore(self.store_runtime)
        )
        self.gate = ForgetfulStore(self.store_runtime) if plan.gate else None
        self.world = SimRuntime(hub, world, self.store_clock)
        dice = hub.dice
        self.places = [
            NodePlace(
                slot, Clock(hub, drift=drift, began_at=dice.uniform(0, 1e6), off_us=dice.randrange(-(10**9), 10**9))
            )
            for slot, drift in enumerate(plan.drifts)
        ]
        self.connection = self.ledger_of(SimRuntime(hub, Process("operator", 99), Clock(hub)), OPERATOR)

    @property
    def servers(self) -> dict[str, SimulatedServer]:
        """The databases, by the names that the weather has for them."""
        return {each.name: each for each in (self.server, self.elsewhere) if each is not None}

    def _server_elsewhere(self) -> SimulatedServer | None:
        """Return the database that bulk work is done in, if it is not the ledger's; the input is there."""
        plan = self.plan
        if plan.bulk is None:
            return None
        if not plan.bulk.is_far:
            self.server.file.fill(plan.bulk.keys)
            return None
        file = effects_file()
        file.empty()
        file.fill(plan.bulk.keys)
        return SimulatedServer(
            self.hub, file, self.weather, latency_s=plan.latency_s, timeout_s=plan.ttl_s / 3, name=ELSEWHERE
        )

    # -- processes ---------------------------------------------------------------------------------------------------

    def boot(self, place: NodePlace) -> None:
        """Start a process in a place that is empty."""
        if place.is_up:
            return
        place.lives += 1
        place.process = process = Process(f"node{place.slot}.{place.lives}", 100 * (place.slot + 1) + place.lives)
        process.on_death.append(lambda: self.drop_all(process))
        runtime = SimRuntime(self.hub, process, place.clock)
        self.hub.spawn(process, "main", lambda: self._main(place, runtime))

    def drop_all(self, process: Process | None = None) -> None:
        """Abort the connections of one process, or of all."""
        for server in self.servers.values():
            server.drop_all(process)

    def kill(self, place: NodePlace) -> None:
        """Kill the process at whatever point it is."""
        if place.process is not None:
            self.hub.kill(place.process)
        place.node = None

    def leave(self, place: NodePlace, grace_s: float = _GRACE_S) -> None:
        """Have the node leave normally; called by a task of the world."""
        process, node, close = place.process, place.node, place.close
        if process is None or node is None or process.is_dead:
            return

        def stop() -> None:
            node.stop(grace_s)
            close()
            self.hub.kill(process)

        self.hub.spawn(process, "stopping", stop)
        give_up_at = self.hub.now + 20.0
        while self.hub.now < give_up_at and not process.is_dead:
            self.hub.wait(0.1)
        self.hub.kill(process)
        if place.process is process:  # and not yet another one
            place.node = None

    def _main(self, place: NodePlace, runtime: SimRuntime) -> None:
        process = runtime.process
        try:
            node = self._composed(place, runtime)
            node.start()
        except (FencepostError, SQLAlchemyError):
            self.hub.kill(process)
            self.hub.spawn(self.world.process, "boot again", partial(self._boot_again, place, process))
            return
        place.node = node

    def _boot_again(self, place: NodePlace, after: Process) -> None:
        self.hub.wait(_TRY_AGAIN_AFTER_S)
        if place.process is after:
            self.boot(place)

    # -- a node's parts ----------------------------------------------------------------------------------------------

    def ledger_of(self, runtime: SimRuntime, slot: int) -> Ledger:
        """Return the ledger as one process reaches it."""
        ledger = self.ledger_kind(slot)(sim_url(self.url_of(slot)), runtime)
        server = self.server_of(slot)
        ledger.dialect = SimDialect(ledger.url, self.store_runtime, server=server, process=runtime.process, slot=slot)
        return ledger

    def ledger_kind(self, slot: int) -> type[Ledger]:
        """Return the ledger object for a process of this slot."""
        return Ledger

    def url_of(self, slot: int) -> str:
        """Return the ledger's URL for the process in a slot."""
        return f"{self.server_of(slot).file.url}?call_timeout={self.plan.ttl_s / 3:.3f}s"

    def server_of(self, slot: int) -> SimulatedServer:
        """Return the server with the ledger of the process in a slot."""
        return self.server

    def leases_of(self, slot: int) -> MemoryStore:
        """Return the store that has the leases of the node in a slot."""
        return self.leases

    def jobs_of(self, place: NodePlace, floor: JobSite, ledger: Ledger, far: Engine | None) -> Jobs:
        """Return the jobs that a process in this place declares; `far` is the database elsewhere, if there is one."""
        plan = self.plan
        names = (*plan.jobs, "late") if place.generation else plan.jobs
        jobs = jobs_on(floor, [name for name in names if name != LOAD])
        if plan.bulk is not None:
            stage = BulkHost(jobs, ledger, place.generation, Operations(ledger, Scope.direct()), partial(wake, place))
            declare_load(stage, plan.bulk, floor, far)
        return jobs

    def settings_of(self, place: NodePlace, runtime: SimRuntime) -> NodeSettings:
        """Return the settings of a node in this place."""
        return NodeSettings(
            name=runtime.process.name,
            version=recorded("simulated", NEWEST),
            timings=Timings.of(self.plan.ttl_s),
            slots=SLOTS,
            generation=place.generation,
            leader=self.plan.leader,
            poll_s=self.plan.poll_s,
        )

    def _composed(self, place: NodePlace, runtime: SimRuntime) -> Node:
        floor = JobSite(self.hub, runtime.process, self.history, runtime.sleep)
        ledger = self.ledger_of(runtime, place.slot)
        self._open_engine(engine_of(ledger), self.server_of(place.slot), runtime.process, place.slot)
        far = self._engine_elsewhere(runtime.process, place.slot)
        jobs = self.jobs_of(place, floor, ledger, far)
        publish(ledger, jobs, place.generation)
        locks = self._locks(self.leases_of(place.slot), LEASES, place, runtime)
        gate = None if self.gate is None else self._locks(self.gate, GATE, place, runtime)

        def close() -> None:
            for each in (locks, gate):
                if each is not None:
                    each.close()
            if far is not None:
                far.dispose()
            ledger.close()

        place.close = close
        state = NodeState(
            ledger=ledger,
            locks=locks,
            gate_locks=gate,
            jobs=jobs,
            runners={"sync": self._runner(jobs, runtime, ledger)},
            runtime=runtime,
            settings=self.settings_of(place, runtime),
            emit=partial(self._emit, runtime.process),
        )
        return Node(state)

    def _runner(self, jobs: Jobs, runtime: SimRuntime, ledger: Ledger) -> ThreadRunner:
        def call(claim: Claim) -> Outcome:
            return invoke(jobs[claim.job], claim, context)

        runner = ThreadRunner(
            call,
            timeouts={name: job.policy.timeout_s for name, job in jobs.items()},
            runtime=runtime,
            slots=SLOTS,
            fenced=frozenset(name for name, job in jobs.items() if not job.policy.stops_in_doubt),
            emit=partial(self._emit, runtime.process),
        )
        context = RunContext(
            node=runtime.process.name,
            runtime=runtime,
            ledger=lambda: ledger,
            standing=runner,
            ttl_s=self.plan.ttl_s,
        )
        return runner

    def _locks(self, store: MemoryStore, kind: str, place: NodePlace, runtime: SimRuntime) -> Locks:
        words: dict[str, Any] = {
            "hub": self.hub,
            "weather": self.weather,
            "history": self.history,
            "process": runtime.process,
            "slot": place.slot,
            "kind": kind,
            "latency_s": self.plan.latency_s,
            "call_timeout_s": Timings.of(self.plan.ttl_s).call_timeout_s,
        }
        way = SteppedWay(store, runtime, **words) if isinstance(store, SteppedStore) else Way(store, **words)
        return Locks(
            way, runtime=runtime, holder=runtime.process.name, observers=[partial(self._emit, runtime.process)]
        )

    def _engine_elsewhere(self, process: Process, slot: int) -> Engine | None:
        if self.elsewhere is None:
            return None
        engine = create_engine(self.elsewhere.file.url, poolclass=QueuePool, pool_size=1, max_overflow=100)
        self._open_engine(engine, self.elsewhere, process, slot)
        return engine

    def _open_engine(self, engine: Engine, server: SimulatedServer, process: Process, slot: int) -> None:
        """Let SQLAlchemy reach a server too, and connect once while no task can interrupt: it holds a real lock."""
        event.listen(engine, "do_connect", lambda *_: server.connect(process, slot, EFFECTS))
        server.is_instant = True
        try:
            with engine.connect():
                pass
        finally:
            server.is_instant = False

    def _emit(self, process: Process, event: Event) -> None:
        self.events[str(event.what)] += 1
        self.emitted.append((self.hub.now, process.name, event))


def wake(place: NodePlace) -> None:
    if place.node is not None:
        place.node.wake()


def publish(ledger: Ledger, jobs: Jobs, generation: int) -> None:
    """Record jobs and schedules, as an application does when it starts."""
    register(ledger, [on_record(job) for job in jobs.values()], generation=generation)
    schedules = [
        NewSchedule(each.id, job.name, schedule_to_json(each.schedule), canonical_json(each.params))
        for job in jobs.values()
        for each in job.schedules
    ]
    sync_code(ledger, generation=generation, jobs=list(jobs), schedules=schedules)
