"""The director: draws the next fault, injects it, and ends it in time.

One step does all that is due: faults that end, processes that are started again, and one more fault. A step never waits
for anything but servers that it restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fencepost.core.runtime import Runtime
from fencepost.proof.chaos.cast import Actor, Cast
from fencepost.proof.chaos.chance import Chance
from fencepost.proof.chaos.faults import EVERYBODY, LIKELIHOOD, MODES, Fault, FaultKind, HarmableServer
from fencepost.proof.chaos.lines import Recorder
from fencepost.proof.chaos.processes import CONTINUE, KILL, STOP, freeze, thaw, workers_of
from fencepost.proof.chaos.proxy import Mode, Proxy
from fencepost.proof.chaos.sparing import Sparing
from fencepost.proof.chaos.wiring import ServerLine
from fencepost.threaded.signals import send

_SHORTEST_PAUSE_TTLS, _LONGEST_PAUSE_TTLS = 0.1, 5.0  # from those that cost no lease to those that outlast a takeover
_SHORTEST_TROUBLE_TTLS, _LONGEST_TROUBLE_TTLS = 0.1, 3.0  # the same, of the network of one actor
_SHORTEST_OUTAGE_TTLS, _LONGEST_OUTAGE_TTLS = 0.2, 1.2  # hardly longer than a ttl: nobody can work meanwhile
_RECOVERY_S = 4.0  # a process that is started again
_LONGEST_DOWN_S = 1.5  # until a killed process is started again; docs/chaos.md says within two seconds
_TRIES = 30  # draws for one fault; if none is possible now, the next attempt is after the usual gap
_WHOM = {
    FaultKind.KILL_NODE: "node",
    FaultKind.KILL_WORKER: "node",
    FaultKind.PAUSE_NODE: "node",
    FaultKind.PAUSE_WORKER: "node",
    FaultKind.FREEZE_NODE: "node",
    FaultKind.KILL_CONTENDER: "contender",
    FaultKind.PAUSE_CONTENDER: "contender",
}


class Director:
    """Injects and ends all faults."""

    def __init__(
        self,
        *,
        cast: Cast,
        lines: Mapping[str, ServerLine],
        servers: Sequence[HarmableServer],
        runtime: Runtime,
        recorder: Recorder,
        chance: Chance,
        ttl_s: float,
        gap_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._cast = cast
        self._lines = lines
        self._servers = servers
        self._runtime = runtime
        self._recorder = recorder
        self._chance = chance
        self._ttl_s = ttl_s
        self._gap_s = gap_s
        self._say = say
        now = runtime.monotonic()
        self._sparing = {
            kind: Sparing([actor.name for actor in actors], ttl_s=ttl_s, begins_at=now)
            for kind, actors in (("node", cast.nodes), ("contender", cast.contenders))
        }
        self._next_at = now
        self._undos: list[tuple[float, Fault, Callable[[], object]]] = []
        self._starting: dict[str, tuple[float, Fault | None]] = {}  # by name: when it is to be started, and why
        self._coming: dict[str, Fault | None] = {}  # started, and not up yet
        self._away: dict[str, Fault] = {}  # asked to leave
        self.faults: list[Fault] = []
        self.fallen: list[str] = []  # actors that ended unexpectedly

    def step(self, *, is_calm: bool = False) -> None:
        """Do all that is due now. With `is_calm`, inject no new fault."""
        now = self._runtime.monotonic()
        self._undo(now, everything=is_calm)
        self._look_after(now, at_once=is_calm)
        if not is_calm and now >= self._next_at:
            self._next_at = now + self._gap_s * self._chance.between(0.5, 1.5)
            self._harm(now)

    def let_in(self, name: str) -> None:
        """Start an actor that was out, or that is leaving: then after it has ended."""
        self._cast.actors[name].is_out = False
        self._starting[name] = (self._runtime.monotonic(), self._away.pop(name, None))

    def send_away(self, name: str, *, within_s: float) -> None:
        """Have an actor leave normally and stay out. Its faults end."""
        actor, now = self._cast.actors[name], self._runtime.monotonic()
        for each in [each for each in self._undos if each[1].target == name]:
            self._undos.remove(each)
            self._end(each[1], each[2])
        self._starting.pop(name, None)
        self._coming.pop(name, None)
        actor.is_out = True
        self._cast.send_away(actor, within_s)
        self._away[name] = fault = Fault(FaultKind.AWAY, name, now, now, actor.pid)
        self._note(fault)

    @property
    def is_well(self) -> bool:
        """Whether all faults have ended, and all actors are up again."""
        return not (self._undos or self._starting or self._coming)

    # -- ending faults -----------------------------------------------------------------------------------------------

    def _undo(self, now: float, *, everything: bool) -> None:
        due = [each for each in self._undos if everything or each[0] <= now]
        self._undos = [each for each in self._undos if each not in due]
        for _, fault, undo in due:
            self._end(fault, undo)

    def _end(self, fault: Fault, undo: Callable[[], object]) -> None:
        undo()
        fault.until = fault.over_at = self._runtime.monotonic()
        self._recorder.note("fault", node=fault.target, detail={"kind": "resume", "of": fault.kind})

    def _look_after(self, now: float, *, at_once: bool) -> None:
        for name, (start_at, fault) in list(self._starting.items()):
            if (at_once or start_at <= now) and not self._cast.actors[name].is_alive:
                del self._starting[name]
                self._coming[name] = fault
                self._cast.start(self._cast.actors[name])
        for name, fault in list(self._coming.items()):
            actor = self._cast.actors[name]
            if actor.is_up:
                del self._coming[name]
                if fault is not None:
                    fault.over_at = self._runtime.monotonic()
            elif not actor.is_alive:  # the ledger did not answer when it started
                del self._coming[name]
                self._starting[name] = (now + 0.5, fault)
        for actor in self._cast.actors.values():
            is_expected = actor.is_out or actor.name in self._starting or actor.name in self._coming
            if not actor.is_alive and not is_expected:
                self.fallen.append(f"{actor.name} ended by itself; it said last: {actor.last_words()}")
                self._starting[actor.name] = (now, None)

    # -- injecting ---------------------------------------------------------------------------------------------------

    def _harm(self, now: float) -> None:
        """Inject the first fault that is possible now, in a random order."""
        for _ in range(_TRIES):
            kind = self._chance.weighted(LIKELIHOOD)
            if (fault := self._try(kind, now)) is not None:
                self._note(fault)
                return

    def _note(self, fault: Fault) -> None:
        self.faults.append(fault)
        detail = {"kind": fault.kind, "seconds": round(max(fault.until - fault.at, 0.0), 3), "pid": fault.pid}
        self._recorder.note("fault", node=fault.target, detail=detail)
        self._say(str(fault))

    def _try(self, kind: FaultKind, now: float) -> Fault | None:
        if kind in EVERYBODY:
            return self._black_out(now) if kind is FaultKind.OUTAGE else self._harm_server(kind, now)
        lasting_s = self._lasting_s(kind)
        actor = self._whom(kind, now, now + max(lasting_s, 0.0) + (_RECOVERY_S if "kill" in kind else 0.0))
        if actor is None:
            return None
        if kind in (FaultKind.KILL_NODE, FaultKind.KILL_CONTENDER):
            return self._kill(kind, actor, now)
        if kind in (FaultKind.KILL_WORKER, FaultKind.PAUSE_WORKER):
            return self._harm_worker(kind, actor, now, lasting_s)
        if kind in (FaultKind.PAUSE_NODE, FaultKind.PAUSE_CONTENDER, FaultKind.FREEZE_NODE):
            return self._stop(kind, actor, now, lasting_s)
        return self._harm_network(kind, actor, now, lasting_s)

    def _lasting_s(self, kind: FaultKind) -> float:
        if kind in MODES:
            return self._ttl_s * self._chance.stretched(_SHORTEST_TROUBLE_TTLS, _LONGEST_TROUBLE_TTLS)
        if "pause" in kind or "freeze" in kind:
            return self._ttl_s * self._chance.stretched(_SHORTEST_PAUSE_TTLS, _LONGEST_PAUSE_TTLS)
        return 0.0

    def _whom(self, kind: FaultKind, now: float, until: float) -> Actor | None:
        """Return an actor without a fault, whose spared turn does not begin before it has recovered."""
        wanted = _WHOM.get(kind)
        ailing = {fault.target for _, fault, _ in self._undos} | set(self._starting) | set(self._coming)
        whom = [
            actor
            for actor in self._cast.actors.values()
            if wanted in (None, "node" if actor.is_node else "contender")
            and actor.name not in ailing
            and not actor.is_out
            and self._sparing["node" if actor.is_node else "contender"].is_free(actor.name, now, until)
        ]
        return self._chance.one_of(whom) if whom else None

    def _kill(self, kind: FaultKind, actor: Actor, now: float) -> Fault:
        fault = Fault(kind, actor.name, now, now, actor.pid)
        self._cast.kill(actor)
        self._starting[actor.name] = (now + self._chance.between(0.0, _LONGEST_DOWN_S), fault)
        return fault

    def _harm_worker(self, kind: FaultKind, actor: Actor, now: float, lasting_s: float) -> Fault | None:
        workers = workers_of(actor.pid)
        if not workers:
            return None
        pid = self._chance.one_of(workers)
        fault = Fault(kind, actor.name, now, now + lasting_s, pid)
        if kind is FaultKind.KILL_WORKER:
            fault.over_at = now
            return fault if send(pid, KILL) else None
        if not send(pid, STOP):
            return None
        self._later(fault, partial(send, pid, CONTINUE))
        return fault

    def _stop(self, kind: FaultKind, actor: Actor, now: float, lasting_s: float) -> Fault:
        fault = Fault(kind, actor.name, now, now + lasting_s, actor.pid)
        if kind is FaultKind.FREEZE_NODE:
            actor.frozen = freeze(actor.pid)
        else:
            actor.frozen = [actor.pid] if send(actor.pid, STOP) else []
        self._later(fault, partial(_go_on, actor))
        return fault

    def _harm_network(self, kind: FaultKind, actor: Actor, now: float, lasting_s: float) -> Fault | None:
        if not actor.proxies:
            return None
        names = list(actor.proxies)
        hit = names if self._chance.random() < 0.5 else [self._chance.one_of(names)]
        fault = Fault(kind, actor.name, now, now + lasting_s)
        for name in hit:
            if kind is FaultKind.CUT:
                actor.proxies[name].cut()
            else:
                actor.proxies[name].set(MODES[kind])
        if kind is FaultKind.CUT:
            fault.over_at = now
        else:
            self._later(fault, partial(_flow, [actor.proxies[name] for name in hit]))
        return fault

    def _black_out(self, now: float) -> Fault | None:
        names = [name for name, line in self._lines.items() if line.server is not None]
        if not names or any(fault.hits_everybody for _, fault, _ in self._undos):
            return None
        name = self._chance.one_of(names)
        lasting_s = self._ttl_s * self._chance.stretched(_SHORTEST_OUTAGE_TTLS, _LONGEST_OUTAGE_TTLS)
        proxies = [actor.proxies[name] for actor in self._cast.actors.values() if name in actor.proxies]
        for proxy in proxies:
            proxy.set(Mode.BLACK_HOLE)
        fault = Fault(FaultKind.OUTAGE, name, now, now + lasting_s)
        self._later(fault, partial(_flow, proxies))
        return fault

    def _harm_server(self, kind: FaultKind, now: float) -> Fault | None:
        if not self._servers:
            return None
        server = self._chance.one_of(self._servers)
        if not server.is_ready() or (kind is FaultKind.PROMOTION and not server.can_promote()):
            return None
        fault = Fault(kind, server.line, now, now)
        self._recorder.note("fault", node=server.line, detail={"kind": kind})  # and again when it is over
        if kind is FaultKind.RESTART:
            server.restart()
        else:
            self._lines[server.line].lead_to(server.promote())
        fault.until = fault.over_at = self._runtime.monotonic()
        return fault

    def _later(self, fault: Fault, undo: Callable[[], object]) -> None:
        self._undos.append((fault.until, fault, undo))


def _go_on(actor: Actor) -> None:
    thaw(actor.frozen)
    actor.frozen = []


def _flow(proxies: Sequence[Proxy]) -> None:
    for proxy in proxies:
        proxy.set(Mode.FLOW)
