"""Carrying out what happens in a life: restarts, kills, deploys, and what people do."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import suppress
from random import Random

from fencepost.app.operations import Operations
from fencepost.core.rights import Scope
from fencepost.errors import FencepostError
from fencepost.ledger import history
from fencepost.ledger.history import RunFilter, RunRow
from fencepost.ledger.pruning import DAY_S
from fencepost.testing.simulation.cluster import NodePlace
from fencepost.testing.simulation.lives.restoring import Restoring
from fencepost.testing.simulation.lives.settlement import Settlement, Tenure
from fencepost.testing.simulation.scenario import SimulatedFault

_BY = "ann"
_UP_WITHIN_S = 30.0  # six timeouts of a call: a sleeping process may have the file locked; then the act goes on
_BETWEEN_RESTARTS_S = 3.0  # a run that takes long, 20 s, meets several restarts
_RUNNING = """
SELECT r.id FROM fencepost_run r JOIN fencepost_node n ON n.id = r.node WHERE r.state = 'running' AND n.name = ?
"""
_SAME = """
SELECT 1 FROM (SELECT * FROM fencepost_run UNION ALL SELECT * FROM sim_gone_run)
WHERE job = ? AND params = ? AND schedule IS ? AND (schedule IS NULL OR due_at IS ?)
  AND state IN ('succeeded', 'queued', 'waiting', 'running') LIMIT 1
"""
_COUNT_BACK = """
UPDATE sqlite_sequence SET seq = max(seq - ?, 0)
WHERE name = 'fencepost_run' AND seq = (SELECT max(id) FROM fencepost_run)
"""
_UNDER_WAY = ("queued", "waiting", "running")


class Happenings:
    """Does what the plan says, each act on a task of the world."""

    def __init__(self, world: Settlement) -> None:
        self._world = world
        self._hub = world.hub
        self._operations = [Operations(connection, Scope.direct()) for connection in world.connections]
        self._dice = Random(f"acts {world.plan.seed}")
        self._returns: list[tuple[float, NodePlace]] = []
        self._asked = 0
        self.hits: list[Counter[int]] = [Counter() for _ in world.ledgers]
        self.orders: list[tuple[int, str, str]] = []
        self.restoring = Restoring(world)
        self.steps_us: list[tuple[int, int]] = []  # from when to when the clock was set, the earlier first
        self._acts = {
            "restart": self._restart,
            "kill": self._kill,
            "sleep": self._sleep,
            "deploy": self._deploy,
            "down": self._down,
            "winter": self._winter,
            "rolling": self._rolling,
            "old zones": self._old_zones,
            "request": self._request,
            "repeat": self._repeat,
            "cancel": self._cancel,
            "reprocess": self._reprocess,
            "clock step": self._step,
            "ids behind": self._ids_behind,
            "restore": self._restore,
        }

    def begin(self) -> None:
        """Start a node in every place."""
        for place in self._world.places:
            self._up(place)

    def happen(self, scene: int, acts: list[SimulatedFault]) -> None:
        """Do all that happens in a scene, one after the other."""
        back = [place for at, place in self._returns if at <= scene]
        self._returns = [(at, place) for at, place in self._returns if at > scene]
        for place in back:
            self._up(place)
        for act in acts:
            self._world.history.note(self._hub.now, "fault", "world", detail={"kind": act.kind, **act.to_json()})
            self._acts[act.kind](act)

    def end(self) -> None:
        """Start all nodes again."""
        self._returns = []
        for place in self._world.places:
            self._up(place)

    # -- processes ---------------------------------------------------------------------------------------------------

    def _place(self, act: SimulatedFault) -> NodePlace:
        return self._world.places[act.slot % len(self._world.places)]

    def _program(self, act: SimulatedFault) -> int:
        return act.slot % len(self._world.life.programs)

    def _up(self, place: NodePlace) -> None:
        """Start a process in a place, or let the one that is there go on, and wait until it works."""
        world = self._world
        if not place.is_up:
            world.boot(place)
        elif place.process is not None and place.process.is_paused:
            self._hub.resume(place.process)
        give_up_at = self._hub.now + _UP_WITHIN_S
        while place.node is None and self._hub.now < give_up_at:
            self._hub.wait(0.05)
        process = place.process
        lives = [each.process for each in world.tenures if each.to_us is None]
        if place.node is None or process is None or process in lives:
            return
        program = world.life.place_programs[place.slot]
        jobs = world.declared[process.name]
        world.tenures.append(Tenure(process, place.slot, program, jobs, world.now_us()))

    def _ended(self, place: NodePlace, *, was_killed: bool) -> None:
        """Record the end of a process. Its successor is upgraded: a way back is promised for a day."""
        self._world.older.discard(place.slot)
        for tenure in self._world.tenures:
            if tenure.process is place.process and tenure.to_us is None:
                tenure.to_us = self._world.now_us()
                tenure.was_killed = was_killed

    def _leave(self, place: NodePlace) -> None:
        if place.process is not None and place.process.is_paused:
            self._hub.resume(place.process)
        self._ended(place, was_killed=False)
        self._world.leave(place)

    def _restart(self, act: SimulatedFault) -> None:
        place = self._place(act)
        if place.is_up:
            self._leave(place)
            self._up(place)

    def _kill(self, act: SimulatedFault) -> None:
        place = self._place(act)
        if not place.is_up or place.process is None:
            return
        self._hub.wait(self._dice.random() * 2.0)
        self._ended(place, was_killed=True)
        self._count_hits(place)
        self._world.kill(place)
        if act.amount:
            self._returns.append((act.at + act.amount, place))
        else:
            self._up(place)

    def _sleep(self, act: SimulatedFault) -> None:
        """Stop a machine for days, at whatever point it is; its clock continues."""
        place = self._place(act)
        # A writer of an older version is expected to be about for a day, not for as long as machines sleep here.
        is_older = place.slot in self._world.older
        if place.is_up and place.process is not None and not place.process.is_paused and not is_older:
            self._hub.wait(self._dice.random() * 2.0)
            self._ended(place, was_killed=True)
            self._hub.pause(place.process)
            self._returns.append((act.at + act.amount, place))

    def _count_hits(self, place: NodePlace) -> None:
        """Note which runs a process is killed with, as the ledger has it."""
        number = self._world.ledger_number(place.slot)
        name = "" if place.process is None else place.process.name
        with self._world.ledgers[number].file.connected() as connection:
            self.hits[number].update(row[0] for row in connection.execute(_RUNNING, (name,)))

    def _deploy(self, act: SimulatedFault) -> None:
        program = self._program(act)
        world = self._world
        world.version[program] += 1
        for place in world.places_of(program):
            world.has_old_zones.discard(place.slot)
            if place.is_up:
                self._leave(place)
                self._up(place)

    def _down(self, act: SimulatedFault) -> None:
        for place in self._world.places_of(self._program(act)):
            if place.is_up:
                self._leave(place)
                self._returns.append((act.at + act.amount, place))

    def _winter(self, act: SimulatedFault) -> None:
        """Have all nodes leave, and start them after many days."""
        for place in self._world.places:
            if place.is_up:
                self._leave(place)
        self._hub.now += act.amount * DAY_S
        for place in self._world.places:
            self._up(place)

    def _rolling(self, act: SimulatedFault) -> None:
        """Restart all nodes of a program, again and again, while something runs that takes long."""
        program = self._program(act)
        self._enqueue(program, "long")
        for _ in range(round(act.amount)):
            self._hub.wait(_BETWEEN_RESTARTS_S)
            for place in self._world.places_of(program):
                if place.is_up:
                    self._leave(place)
                    self._up(place)

    def _old_zones(self, act: SimulatedFault) -> None:
        place = self._place(act)
        self._world.has_old_zones.add(place.slot)
        if place.is_up:
            self._leave(place)
            self._up(place)

    def _step(self, act: SimulatedFault) -> None:
        before_us = self._world.now_us()
        self._world.store_clock.off_us += round(act.amount * 1_000_000)
        after_us = self._world.now_us()
        self.steps_us.append((min(before_us, after_us), max(before_us, after_us)))

    def _ids_behind(self, act: SimulatedFault) -> None:
        """Let the count of ids fall behind, as after a restore that left it out; not below what was pruned."""
        server = self._world.ledgers[self._world.life.programs[self._program(act)].ledger]
        while server.is_busy:
            self._hub.wait(0.01)
        with (
            server.file.connected() as connection,
            suppress(sqlite3.OperationalError),
        ):  # a sleeping process may have it locked
            connection.execute(_COUNT_BACK, (round(act.amount),))

    def _restore(self, act: SimulatedFault) -> None:
        """Make a dump of a ledger; or put the last one back, meet it with all its nodes, and accept it."""
        number = self._world.life.programs[self._program(act)].ledger
        if not self.restoring.has_dump(number):
            self.restoring.dump(number)
            return
        places = [place for place in self._world.places if self._world.ledger_number(place.slot) == number]
        for place in places:
            if place.is_up:
                self._leave(place)
        if not self.restoring.put_back(number):
            return
        for place in places:
            self._up(place)
        self.restoring.accept(number)

    # -- people ------------------------------------------------------------------------------------------------------

    def _request(self, act: SimulatedFault) -> None:
        self._enqueue(self._program(act), act.word)

    def _enqueue(self, program: int, kind: str) -> None:
        made = self._world.life.programs[program]
        self._asked += 1
        wanted = f"{made.name}{self._asked}"
        params = {"batch": wanted} if kind == "load" else {"order": wanted}
        try:
            self._operations[made.ledger].enqueue(f"{made.prefix}-{kind}", params, key=wanted)
        except FencepostError:
            return
        self.orders.append((made.ledger, kind, wanted))

    def _repeat(self, act: SimulatedFault) -> None:
        """Repeat something that was given up or cancelled, if its work is neither done nor under way."""
        number = self._world.life.programs[self._program(act)].ledger
        found = [run for run in self._runs(number, ("dead", "cancelled")) if not self._is_seen_to(number, run)]
        found = [run for run in found if run.job.endswith(act.word)] or found
        if not found:
            return
        try:
            made = self._operations[number].retry(found[round(act.amount * 1000) % len(found)].id, by=_BY)
            if act.amount > 0.6:
                self._operations[number].cancel(made, by=_BY)
        except FencepostError:
            return

    def _cancel(self, act: SimulatedFault) -> None:
        number = self._world.life.programs[self._program(act)].ledger
        found = self._runs(number, _UNDER_WAY)
        if found:
            try:
                self._operations[number].cancel(found[round(act.amount * 1000) % len(found)].id, by=_BY)
            except FencepostError:
                return

    def _reprocess(self, act: SimulatedFault) -> None:
        """Repeat all that was given up, after one of them was repeated by hand."""
        number = self._world.life.programs[self._program(act)].ledger
        found = [run for run in self._runs(number, ("dead",)) if not self._is_seen_to(number, run)]
        with suppress(FencepostError):
            if found:
                self._operations[number].retry(found[0].id, by=_BY)
                self._hub.wait(_BETWEEN_RESTARTS_S)
            self._operations[number].reprocess(by=_BY)

    def _runs(self, number: int, states: tuple[str, ...]) -> list[RunRow]:
        try:
            return history.runs(self._world.connections[number], RunFilter(states=states), limit=30)
        except FencepostError:
            return []

    def _is_seen_to(self, number: int, run: RunRow) -> bool:
        """Whether the work of a run is done or under way."""
        with self._world.ledgers[number].file.connected() as connection:
            asked = (run.job, run.params, run.schedule, run.due_at)
            return connection.execute(_SAME, asked).fetchone() is not None
