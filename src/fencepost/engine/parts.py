"""The parts of a node: what it is made of, and what they tell each other.

Each loop is a step over the `Runtime`, on a task and a connection of its own. No part knows the node: it is given what
to ask and whom to tell when it is made. How all of them begin and end together is in `engine.node`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import Runtime, Task
from fencepost.core.timings import Timings
from fencepost.engine.deploying import Deploying
from fencepost.engine.exchange import Exchange
from fencepost.engine.gate import Gate
from fencepost.engine.giving_up import LostNodeRuns
from fencepost.engine.job_policies import JobPolicies
from fencepost.engine.jobs import Jobs
from fencepost.engine.lateness import Lateness
from fencepost.engine.ledger_clock import LedgerClock
from fencepost.engine.loop import Loop, Step
from fencepost.engine.lost_identities import told
from fencepost.engine.membership import Member, Membership
from fencepost.engine.pauses import Pauses
from fencepost.engine.planned_first import PlannedFirst
from fencepost.engine.planner import Planner
from fencepost.engine.pruner import Pruner
from fencepost.engine.reaper import Reaper
from fencepost.engine.runner_jobs import stations
from fencepost.engine.runners.runner import Runner
from fencepost.engine.same_ledger import SameLedger
from fencepost.engine.serving import Serving
from fencepost.engine.ticks import Ticks
from fencepost.engine.tidings import nobody
from fencepost.engine.troubles import Troubles
from fencepost.errors import FencepostError, LedgerHeld, SchemaMismatch
from fencepost.leases.election import Election
from fencepost.leases.lease import Lease
from fencepost.leases.locks import Locks
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.declared import Declarations, see
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.looking import Look
from fencepost.ledger.migrations import refuse_unreadable
from fencepost.ledger.nodes import NewNode, join, leave, note_pause, serve
from fencepost.ledger.pruning import Retention
from fencepost.ledger.run_rows import HORIZON_US
from fencepost.ledger.sequences import advance_sequences
from fencepost.ledger.waking import listener

_ONLY_AS_A_MEMBER = ("planner", "reaper")
_WHILE_HELD_S = 1.0
_ASK_AGAIN_S = 1.0
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


class NodeParts(ABC):
    """What a node is made of, put together. `Node` begins and ends it."""

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
        wants: Callable[[What], bool] = nobody,
        declared: Declarations | None = None,
        publish: Callable[[], None] = lambda: None,
    ) -> None:
        self._ledger = ledger
        self._locks = locks
        self._jobs = jobs
        self._runners = list(dict.fromkeys(runners.values()))
        self._runtime = runtime
        self._settings = settings
        self._emit = emit
        self._declared = declared
        self._publish = publish
        self._is_started = False
        self._is_crippled = False
        self._lacking: set[str] = set()  # jobs that this process knows, and its workers do not
        self._withdrawing = runtime.lock()  # or of two jobs that are lacking the ledger is told of one, perhaps
        self._stopping = runtime.lock()
        self._stopped = runtime.event()
        self._troubles = Troubles(runtime, node=lambda: self.node_id or "-", emit=emit)
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
        burial = LostNodeRuns(ledger, emit, ttl_s=timings.ttl_s)
        self._same = SameLedger(ledger=ledger, runtime=runtime, emit=emit, noted=locks.noted)
        self._lateness = Lateness(ledger=ledger, policies={name: job.policy for name, job in jobs.items()}, emit=emit)
        self._gate = None if gate_locks is None else self._make_gate(gate_locks)
        self._exchange = Exchange(
            ledger=ledger,
            membership=self._membership,
            stations=stations(jobs, runners),
            endings=JobPolicies(
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
            on_unknown=self._lacks,
            may_begin=self._may_begin,
            same=self._same,
            gate=self._gate,
            wants=wants,
        )
        self._serving = Serving(emit, on_queued=self._hint)
        self._planner = Planner(
            ledger=ledger,
            ticks=Ticks(
                horizon_us=HORIZON_US,
                emit=emit,
                is_believed=self._clock.told,
                is_served=self._serving.is_served,
            ),
            serving=self._serving,
            clock=self._clock,
            is_member=lambda: self._membership.member is not None,
            may_plan=self._may_lead,
            on_planned=self._hint,
            emit=emit,
            rest_s=max(poll_s * 2, 10.0),
            same=self._same,
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
            same=self._same,
        )
        self._pruner = Pruner(
            ledger=ledger,
            retention=settings.retention,
            runtime=runtime,
            may_prune=lambda: self._may_lead() and not self._same.is_held,
        )
        self._pauses = Pauses(self._paused)
        self._member_loop = self._loop("membership", self._membership.step)
        self._exchange_loop = self._loop("exchange", self._exchange.step)
        self._planner_loop = self._loop("planner", self._planner.step)
        self._planned_first = PlannedFirst(self._planner, wake=self._planner_loop.wake)
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
        self._deploying: Deploying | None = None
        self._deploys_loop: Loop | None = None
        if declared is not None:
            self._deploying = Deploying(
                ledger=ledger,
                declared=declared,
                is_member=lambda: self._membership.member is not None,
                on_changed=self._hint,
            )
            self._deploys_loop = self._loop("deploys", self._deploying.step)
            self._loops.append(self._deploys_loop)
        self._listener = listener(ledger)
        locks.observe(self._renewed)

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
            jobs=tuple(name for name in self._jobs if name not in self._lacking),
            fingerprint=None if self._declared is None else self._declared.fingerprint,
        )
        with self._own_desk() as desk:
            self._same.check(desk)
            self._advance_sequences(desk)
            if new.fingerprint is not None:
                see(self._ledger, new.fingerprint, desk=desk)
            join(self._ledger, new, desk=desk)
            try:
                refuse_unreadable(self._ledger, desk)
            except SchemaMismatch:
                leave(self._ledger, node_id, desk=desk)
                raise
        self._emit(Event(What.NODE_JOINED, node=node_id, holder=settings.name))

    def _advance_sequences(self, desk: LedgerConnection) -> None:
        for behind in advance_sequences(self._ledger, desk=desk):
            self._emit(Event(What.LEDGER_TROUBLE, node=self._settings.name, reason=f"{behind}; it was advanced"))

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
        self._serving.nodes_changed(look.nodes_mark)
        self._planner.due_at(look.next_due_at_us, look.next_waiting_at_us)
        self._planner_loop.wake()
        self._reaper.nodes_changed(look.nodes_mark)
        if self._deploying is not None and self._deploying.nodes_changed(look.nodes_mark) and self._deploys_loop:
            self._deploys_loop.wake()

    def _lacks(self, job: str) -> None:
        """Note that the workers do not have a job: others shall not count on this node for it."""
        self._lacking.add(job)
        reason = (
            "the code that its workers load now does not have this job: its runs are handed back, and this node takes"
        )
        reason += " no more of them. Start the node anew, with the code of one deploy"
        self._emit(Event(What.RUNNER_WARNING, job=job, node=self.node_id, reason=reason))
        self._beside("withdrawing", self._withdraw)

    def _withdraw(self) -> None:
        """Tell the ledger, however often it takes: while its row has the job, others rely on this node for it."""
        while not self._stopped.is_set():
            with suppress(FencepostError), self._withdrawing, self._own_desk() as desk:
                if (node_id := self.node_id) is not None:
                    served = tuple(name for name in self._jobs if name not in self._lacking)
                    serve(self._ledger, node_id, served, desk=desk)
                    return
            self._stopped.wait(_ASK_AGAIN_S)

    def _waits(self, at_us: int) -> None:
        self._planner.waits_until(at_us)
        self._planner_loop.wake()

    def _may_begin(self, identity: str, now: float) -> bool:
        return self._planned_first.may_claim(identity, now)

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

    # -- small things ------------------------------------------------------------------------------------------------

    @contextmanager
    def _own_desk(self) -> Iterator[LedgerConnection]:
        """Lend a connection for what is seldom to be said: none is kept for it, and no busy user of ours has it."""
        desk = self._ledger.desk("node")
        try:
            yield desk
        finally:
            desk.rest()

    def _beside(self, name: str, work: Callable[[], None]) -> Task | None:
        """Do something beside the rest; here and now where the process ends, and starts no more threads."""
        try:
            return self._runtime.spawn(f"fencepost-{name}", work)
        except RuntimeError:
            work()
            return None

    def _make_gate(self, locks: Locks) -> Gate:
        def lost(run_id: int, token: int) -> None:
            for runner in self._runners:
                runner.stop(run_id, token, StopReason.LOST)

        return Gate(locks, runtime=self._runtime, ttl=self._settings.timings.ttl_s, on_lost=lost, emit=self._emit)

    def _loop(self, name: str, step: Step) -> Loop:
        def told(now: float) -> float:
            self._before_a_step()
            try:
                wake_at = step(now)
            except LedgerHeld:
                self._exchange_loop.wake()  # which looks what it is, and reports it
                return now + _WHILE_HELD_S
            self._is_well(name)
            return wake_at

        return Loop(name, told, runtime=self._runtime, on_trouble=self._troubles.met)

    @abstractmethod
    def _before_a_step(self) -> None:
        """Be called before every step of every loop, on its task."""

    def _is_well(self, name: str) -> None:
        """Note that trouble is over; not if the step went well because, without an identity, it asked for nothing."""
        if self._membership.member is not None or name not in _ONLY_AS_A_MEMBER:
            self._troubles.over(name)
