"""Injects the faults of the plan at their times, and ends all of them at the end."""

from __future__ import annotations

from functools import partial
from typing import Any

from fencepost.core.names import NODE_LEASE
from fencepost.proof.history import EntryKind
from fencepost.testing.simulation.cluster import Cluster, NodePlace
from fencepost.testing.simulation.operators import Operators
from fencepost.testing.simulation.scenario import SERVER_STEP, SimulatedFault
from fencepost.testing.simulation.stepped_store import SteppedStore
from fencepost.testing.simulation.weather import Shot


class Faults:
    """Carries out the faults of a plan, each on a task of the world."""

    def __init__(self, cluster: Cluster, operators: Operators) -> None:
        self._cluster = cluster
        self._operators = operators
        self._hub = cluster.hub
        self._under_way = 0
        self._is_over = False
        self._generation = 0
        self._acts = {
            "kill": self._kill,
            "pause": self._pause,
            "restart": self._restart,
            "clock step": self._step,
            "drift": self._drift,
            SERVER_STEP: self._step_server,
            "shot": self._shoot,
            "stall": self._shoot,
            "outage": self._outage,
            "cut": self._cut,
            "forget": self._forget,
            "revoke": self._revoke,
            "deploy": self._deploy,
            "operator": self._press,
        }

    @property
    def is_under_way(self) -> bool:
        """Whether a fault has not ended."""
        return self._under_way > 0

    def begin(self) -> None:
        """Wait for the time of each."""
        for fault in self._cluster.plan.faults:
            self._hub.spawn(self._cluster.world.process, f"fault {fault.kind}", partial(self._happen, fault))

    def end(self) -> None:
        """Inject no more faults, and end the present ones."""
        self._is_over = True
        cluster = self._cluster
        cluster.weather.clear()
        for place in cluster.places:
            if place.process is not None and place.process.is_paused:
                self._hub.resume(place.process)
            if not place.is_up:
                cluster.boot(place)

    def _happen(self, fault: SimulatedFault) -> None:
        self._hub.wait(max(fault.at - self._hub.now, 0.0))
        if self._is_over:
            return
        place = self._cluster.places[fault.slot % len(self._cluster.places)]
        node = place.process.name if place.process is not None else f"node{place.slot}"
        detail = {"kind": fault.kind, **fault.to_json()}
        self._cluster.history.note(self._hub.now, "fault", node, detail=detail)
        self._under_way += 1
        try:
            self._acts[fault.kind](place, fault)
        finally:
            self._under_way -= 1

    def _kill(self, place: NodePlace, fault: SimulatedFault) -> None:
        self._cluster.kill(place)
        self._hub.wait(fault.length_s)
        if not self._is_over:
            self._cluster.boot(place)

    def _pause(self, place: NodePlace, fault: SimulatedFault) -> None:
        process = place.process
        if process is None or process.is_dead or process.is_paused:
            return
        self._hub.pause(process)
        self._hub.wait(fault.length_s)
        if process.is_paused:
            self._hub.resume(process)

    def _restart(self, place: NodePlace, fault: SimulatedFault) -> None:
        self._cluster.leave(place)
        self._hub.wait(fault.length_s)
        self._cluster.boot(place)

    def _step(self, _: NodePlace, fault: SimulatedFault) -> None:
        self._cluster.store_clock.off_us += round(fault.amount * 1_000_000)

    def _step_server(self, _: NodePlace, fault: SimulatedFault) -> None:
        if isinstance(self._cluster.leases, SteppedStore):
            self._cluster.leases.step(fault.amount)

    def _drift(self, place: NodePlace, fault: SimulatedFault) -> None:
        place.clock.drift(fault.amount)

    def _shoot(self, place: NodePlace, fault: SimulatedFault) -> None:
        how, store, *at = fault.word.split()
        self._cluster.weather.aim(place.slot, store, Shot(how, fault.length_s, "".join(at)))

    def _outage(self, _: NodePlace, fault: SimulatedFault) -> None:
        self._away(None, fault)

    def _cut(self, place: NodePlace, fault: SimulatedFault) -> None:
        self._away(place.slot, fault)

    def _away(self, slot: int | None, fault: SimulatedFault) -> None:
        weather, stores = self._cluster.weather, fault.word.split()
        for store in stores:
            weather.cut(slot, store)
            if store in self._cluster.servers:
                self._cluster.servers[store].drop_all(slot=slot)
        self._hub.wait(fault.length_s)
        if not self._is_over:
            for store in stores:
                weather.mend(slot, store)

    def _forget(self, _: NodePlace, fault: SimulatedFault) -> None:
        if self._cluster.gate is not None:
            self._cluster.gate.forget(fault.amount)

    def _revoke(self, place: NodePlace, _: SimulatedFault) -> None:
        """Take the node's session away: until its next renewal it does not know, and only fences stop its writes."""
        cluster, process = self._cluster, place.process
        for record in cluster.leases.records():
            is_its = process is not None and (record.holder or "").startswith(process.name)
            if is_its and record.name.startswith(NODE_LEASE):
                about: dict[str, Any] = {"name": record.name, "grant": record.grant_id, "token": record.token}
                call = cluster.history.invoke(self._hub.now, "revoke", "operator", **about)
                kind = EntryKind.OK if cluster.leases.revoke(record) else EntryKind.REFUSED
                cluster.history.end(call, self._hub.now, kind, "revoke", "operator", **about)

    def _deploy(self, place: NodePlace, _: SimulatedFault) -> None:
        self._generation += 1
        self._cluster.leave(place)
        place.generation = self._generation
        self._cluster.boot(place)

    def _press(self, _: NodePlace, fault: SimulatedFault) -> None:
        word, job = fault.word.split()
        self._operators.press(word, job, round(fault.amount))
        if word == "hold":
            self._hub.wait(fault.length_s)
            self._operators.let_go(job)
