"""A node: one participating process, its loops, and how they begin and end together.

::

    start ──▶ join ──▶ loops: membership · exchange · planner · reaper · pruner · pauses
                                   │ (· lateness, where jobs have an SLA · a listener for hints)
                                   │ session lost: stop what runs, join as somebody else
    stop ──▶ claim nothing more ──▶ what has not started goes back ──▶ the rest gets its grace ──▶ leave

Each loop is a step over the `Runtime`, on a task and a connection of its own. No node is special: a leader, if the
application wants one, only saves the others the planning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import Runtime, Task
from fencepost.core.timings import Timings
from fencepost.engine.burial import Burial
from fencepost.engine.endings import Endings
from fencepost.engine.exchange import Exchange, Station
from fencepost.engine.formers import told
from fencepost.engine.gate import Gate
from fencepost.engine.jobs import Jobs
from fencepost.engine.lateness import Lateness
from fencepost.engine.ledger_clock import LedgerClock
from fencepost.engine.loop import Loop, Step
from fencepost.engine.membership import Member, Membership
from fencepost.engine.pauses import Pauses
from fencepost.engine.planner import HORIZON_S, Planner
from fencepost.engine.pruner import Pruner
from fencepost.engine.reaper import Reaper
from fencepost.engine.runners.runner import Runner
from fencepost.engine.ticks import Ticks
from fencepost.errors import FencepostError
from fencepost.leases.election import Election
from fencepost.leases.lease import Lease
from fencepost.leases.locks import Locks
from fencepost.ledger.desk import Desk
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.looking import Look
from fencepost.ledger.nodes import NewNode, join, leave, note_pause
from fencepost.ledger.pruning import Retention
from fencepost.ledger.waking import listener

LEADER = "fencepost/leader"
_ONLY_AS_A_MEMBER = ("planner", "reaper")
_LOOP_ENDS_WITHIN_S = 5.0
_IN_DOUBT = "the ledger does not answer; its effects are fenced, so it goes on until one of them has to land"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node needs to know of itself."""

    name: str
    version: str
    timings: Timings
    queues: Sequence[str] = ("default",)
    slots: int = 10
    generation: int = 0
    leader: bool = False
    poll_s: float | None = None  # None: seldom where hints arrive, every other second where they do not
    retention: Retention = field(default_factory=Retention)


class Node:
    """One participating process. Made by the application; start it once."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        locks: Locks,
        jobs: Jobs,
        runners: Mapping[str, Runner],
        runtime: Runtime,
        settings: NodeSettings,
        emit: Callable[[Event], None],
        gate_locks: Locks | None = None,
    ) -> None:
        self._ledger = ledger
        self._locks = locks
        self._jobs = jobs
        self._runners = list(dict.fromkeys(runners.values()))
        self._runtime = runtime
        self._settings = settings
        self._emit = emit
        self._is_started = False
        self._stopping = runtime.lock()
        self._stopped = runtime.event()
        self._troubled: dict[str, str] = {}
        self._election: Election | None = None
        self._listening: Task | None = None
        timings = settings.timings
        poll_s = settings.poll_s or (5.0 if ledger.dialect.name == "postgresql" else 2.0)
        self._clock = LedgerClock(runtime, longest_gap_s=max(timings.ttl_s / 2, 2 * poll_s))
        self._membership = Membership(
            locks=locks,
            runtime=runtime,
            ttl=timings.ttl_s,
            enrol=self._enrol,
            on_trust=self._trust,
            on_lost=self._lost,
            wake=self._wake_membership,
        )
        burial = Burial(ledger, emit)
        self._lateness = Lateness(ledger=ledger, policies={name: job.policy for name, job in jobs.items()}, emit=emit)
        self._gate = None if gate_locks is None else self._make_gate(gate_locks)
        self._exchange = Exchange(
            ledger=ledger,
            membership=self._membership,
            stations=_stations(jobs, runners),
            endings=Endings(
                jobs,
                random=runtime.random,
                emit=emit,
                on_end=self._lateness.ended if self._lateness.has_promises else None,
            ),
            burial=burial,
            clock=self._clock,
            runtime=runtime,
            queues=settings.queues,
            poll_s=poll_s,
            emit=emit,
            on_look=self._looked,
            on_waiting=self._waits,
            gate=self._gate,
        )
        self._planner = Planner(
            ledger=ledger,
            ticks=Ticks(
                horizon_us=round(HORIZON_S * 1_000_000),
                emit=emit,
                is_believed=self._clock.told,
            ),
            clock=self._clock,
            is_member=lambda: self._membership.member is not None,
            may_plan=self._may_lead,
            on_planned=self._hint,
            emit=emit,
            rest_s=max(poll_s * 2, 10.0),
        )
        self._reaper = Reaper(
            ledger=ledger,
            burial=burial,
            locks=locks,
            membership=self._membership,
            clock=self._clock,
            ttl=timings.ttl_s,
            ttl_s=timings.ttl_s,
            may_reap=lambda: not self._exchange.has_formers,  # what was ours we adopt before we declare it dead
            on_reaped=self._hint,
            emit=emit,
        )
        self._pruner = Pruner(ledger=ledger, retention=settings.retention, runtime=runtime, may_prune=self._may_lead)
        self._pauses = Pauses(self._paused)
        self._member_loop = self._loop("membership", self._membership.step)
        self._exchange_loop = self._loop("exchange", self._exchange.step)
        self._planner_loop = self._loop("planner", self._planner.step)
        self._loops = [
            self._member_loop,
            self._exchange_loop,
            self._planner_loop,
            self._loop("reaper", self._reaper.step),
            self._loop("pruner", self._pruner.step),
            self._loop("pauses", self._pauses.step),
        ]
        if self._lateness.has_promises:
            self._loops.append(self._loop("lateness", self._lateness.step))
        self._listener = listener(ledger)
        locks.observe(self._renewed)

    # -- beginning and end -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join and begin. Raises `LedgerUnavailable` or a `ConfigurationError` if that cannot be."""
        self._is_started = True
        self._membership.join()
        try:
            self._begin()
        except BaseException:
            self.stop(0.0)
            raise
        self._ledger.pool.rest()  # what was needed to begin is not needed to go on

    def stop(self, grace_s: float) -> None:
        """Claim nothing more, give what runs `grace_s` to end, tell the ledger, and leave."""
        if not self._is_started:
            return
        with self._stopping:
            if not self._stopped.is_set():
                self._wind_up(grace_s)

    @property
    def is_running(self) -> bool:
        """Whether it was started and not yet stopped."""
        return self._is_started and not self._stopped.is_set()

    @property
    def node_id(self) -> str | None:
        """The present identity, while this node may act."""
        member = self._membership.member
        return member.node_id if member else None

    @property
    def trusted_until(self) -> float:
        """Until when this node may act, on the monotonic clock."""
        member = self._membership.member
        return member.lease.trusted_until if member else float("-inf")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it was stopped; False if that did not happen in time."""
        return self._stopped.wait(timeout_s)

    def wake(self) -> None:
        """Look now: something was asked for in this process."""
        self._hint()

    def forget(self) -> None:
        """In a forked child: the parent is the node, and its loops are not here."""
        self._is_started = False
        self._membership.forget()

    # -- what the parts tell each other ------------------------------------------------------------------------------

    def _enrol(self, node_id: str, lease: Lease) -> None:
        settings = self._settings
        new = NewNode(
            id=node_id,
            name=settings.name,
            grant_id=lease.grant_id,
            token=lease.token,
            generation=settings.generation,
            version=settings.version,
            slots=settings.slots,
            queues=tuple(settings.queues),
            jobs=tuple(self._jobs),
        )
        with self._own_desk() as desk:
            join(self._ledger, new, desk=desk)
        self._emit(Event(What.NODE_JOINED, node=node_id, holder=settings.name))

    def _trust(self, until: float) -> None:
        for runner in self._runners:
            runner.trust(until)
        if self._exchange.has_formers:
            self._exchange_loop.wake()

    def _lost(self, member: Member, reason: str) -> None:
        suspended: list[Claim] = []
        for runner in self._runners:
            if member.lease.ran_out:
                suspended += runner.suspend()
            else:
                runner.lose()
        self._exchange.lost(member, suspended)
        self._emit(Event(What.NODE_LOST, node=member.node_id, holder=self._settings.name, reason=reason))
        for claim in suspended:
            self._emit(told(What.RUN_SUSPENDED, claim, member.node_id, _IN_DOUBT))

    def _looked(self, look: Look) -> None:
        self._planner.due_at(look.next_due_at_us, look.next_waiting_at_us)
        self._planner_loop.wake()
        self._reaper.nodes_changed(look.nodes_mark)

    def _waits(self, at_us: int) -> None:
        self._planner.waits_until(at_us)
        self._planner_loop.wake()

    def _wake_membership(self) -> None:
        self._member_loop.wake()

    def _renewed(self, event: Event) -> None:
        """Pass trust on at once: a renewal in the last moment must not come too late for the runs."""
        if event.what is What.RENEWED:
            self._member_loop.wake()

    def _hint(self) -> None:
        self._exchange.hint()
        self._exchange_loop.wake()

    def _may_lead(self) -> bool:
        return self._election is None or self._election.is_leader

    def _paused(self, paused_s: float) -> None:
        self._emit(Event(What.PROCESS_PAUSED, node=self.node_id or "-", held_s=paused_s))
        if (node_id := self.node_id) is not None:
            with self._own_desk() as desk:
                note_pause(self._ledger, node_id, round(self._pauses.longest_s * 1_000_000), desk=desk)

    def _listen(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._listener.wait(1.0):
                    self._hint()
            except Exception:  # noqa: BLE001 - a hint is a courtesy: polling finds it too
                self._stopped.wait(1.0)
        self._listener.wait(0.0)  # it is closed; whoever waits lets go of its connection

    # -- beginning and ending in order -------------------------------------------------------------------------------

    def _begin(self) -> None:
        for runner in self._runners:
            runner.start(self._exchange_loop.wake)
        if self._settings.leader:
            self._election = self._locks.election(LEADER, ttl=self._settings.timings.ttl_s)
        for loop in self._loops:
            loop.start()
        self._listening = self._runtime.spawn("fencepost-listener", self._listen)

    def _wind_up(self, grace_s: float) -> None:
        self._exchange.drain()
        give_up_at = self._runtime.monotonic() + grace_s
        self._end_runs(grace_s)
        self._flush(give_up_at + _LOOP_ENDS_WITHIN_S)
        self._stopped.set()
        self._listener.close()
        self._end_loops()
        if self._listening is not None:
            self._listening.join(_LOOP_ENDS_WITHIN_S)
        if self._election is not None:
            self._election.stop()
        if (leaving := self._beside("leaving", self._leave)) is not None:
            leaving.join(_LOOP_ENDS_WITHIN_S)  # if nobody answers, others will find out
        for part in (self._exchange, self._planner, self._reaper, self._pruner, self._lateness):
            part.close()

    def _end_runs(self, grace_s: float) -> None:
        closings = [partial(runner.close, grace_s) for runner in self._runners]
        tasks = [task for closing in closings if (task := self._beside("closing", closing)) is not None]
        for task in tasks:
            task.join(grace_s + _LOOP_ENDS_WITHIN_S)

    def _beside(self, name: str, work: Callable[[], None]) -> Task | None:
        """Do something beside the rest; here and now where the process ends, and starts no more threads."""
        try:
            return self._runtime.spawn(f"fencepost-{name}", work)
        except RuntimeError:
            work()
            return None

    def _flush(self, give_up_at: float) -> None:
        """Wait until the ledger knows how everything ended; what it does not answer, the reaper will find."""
        while not self._exchange.is_empty and self._runtime.monotonic() < give_up_at:
            self._exchange_loop.wake()
            self._runtime.sleep(0.01)

    def _end_loops(self) -> None:
        """End all loops at once. The exchange may have been in the middle of a claim, which it then hands back."""
        for loop in self._loops:
            loop.stop(0.0)
        give_up_at = self._runtime.monotonic() + _LOOP_ENDS_WITHIN_S
        for loop in self._loops:
            loop.stop(max(give_up_at - self._runtime.monotonic(), 0.0))
        if self._exchange_loop.stop(0.0):
            with suppress(FencepostError):
                self._exchange.settle(self._runtime.monotonic())

    def _leave(self) -> None:
        member = self._membership.leave()
        if self._gate is not None:
            self._gate.close()
        if member is None:
            return
        with suppress(FencepostError), self._own_desk() as desk:
            leave(self._ledger, member.node_id, desk=desk)  # first: whose session is free, others take for dead
        member.lease.release()
        self._emit(Event(What.NODE_LEFT, node=member.node_id, holder=self._settings.name))

    # -- small things ------------------------------------------------------------------------------------------------

    @contextmanager
    def _own_desk(self) -> Iterator[Desk]:
        """Lend a connection for what is seldom to be said: none is kept for it, and no busy user of ours has it."""
        desk = self._ledger.desk("node")
        try:
            yield desk
        finally:
            desk.rest()

    def _make_gate(self, locks: Locks) -> Gate:
        def lost(run_id: int, token: int) -> None:
            for runner in self._runners:
                runner.stop(run_id, token, StopReason.LOST)

        return Gate(locks, runtime=self._runtime, ttl=self._settings.timings.ttl_s, on_lost=lost, emit=self._emit)

    def _loop(self, name: str, step: Step) -> Loop:
        def told(now: float) -> float:
            wake_at = step(now)
            self._is_well(name)
            return wake_at

        return Loop(name, told, runtime=self._runtime, on_trouble=self._is_troubled)

    def _is_troubled(self, name: str, error: BaseException) -> None:
        """Tell of trouble once, not at every try."""
        text = str(error) or repr(error)
        if self._troubled.get(name) != text:
            self._troubled[name] = text
            kind = "" if isinstance(error, FencepostError) else f"{type(error).__name__}: "
            self._emit(Event(What.LEDGER_TROUBLE, node=self._settings.name, reason=f"{name}: {kind}{text}"))

    def _is_well(self, name: str) -> None:
        """Tell that trouble is over; not if the step went well because, without an identity, it asked for nothing."""
        if self._membership.member is None and name in _ONLY_AS_A_MEMBER:
            return
        if self._troubled.pop(name, None) is not None:
            self._emit(Event(What.LEDGER_BACK, node=self._settings.name, reason=name))


def _stations(jobs: Jobs, runners: Mapping[str, Runner]) -> list[Station]:
    """Give each runner the jobs of its kinds."""
    names: dict[int, list[str]] = {}
    by_id = {id(runner): runner for runner in runners.values()}
    for name, job in jobs.items():
        names.setdefault(id(runners[job.kind]), []).append(name)
    return [Station(by_id[key], tuple(found)) for key, found in names.items()]
