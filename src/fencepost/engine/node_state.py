"""The state that the loops of a node share: its identity, what it knows of its ledger, and how loops wake each other.

Every loop is made with this and nothing else, and no loop refers to another one. What one needs from another is here:
the identity of this process (`member`), whether it may lead (`may_lead`), whether the ledger is held (`same`), the runs
of lost identities (`lost_identities`), the result of a look (`on_look`), what has been planned (`planning`). Each
attribute is set by one loop and read by the others, from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from fencepost.core.events import Event, What
from fencepost.core.runs import StopReason
from fencepost.core.runtime import Runtime, Task
from fencepost.core.timings import Timings
from fencepost.engine.agenda import Agenda
from fencepost.engine.figure_counts import FigureCounts
from fencepost.engine.gate import Gate
from fencepost.engine.giving_up import LostNodeRuns
from fencepost.engine.job_policies import JobPolicies
from fencepost.engine.jobs import Jobs
from fencepost.engine.ledger_clock import LedgerClock
from fencepost.engine.logs.run_logs import RunLogs
from fencepost.engine.lost_identities import LostIdentities
from fencepost.engine.run_events import wants_none
from fencepost.engine.runner_jobs import runner_jobs
from fencepost.engine.runners.runner import Runner
from fencepost.engine.same_ledger import SameLedger
from fencepost.leases.election import Election
from fencepost.leases.lease import Lease
from fencepost.leases.locks import Locks
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.declared import Declarations
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.looking import Look
from fencepost.ledger.pruning import Retention

# The loops that others wake.
MEMBERSHIP, EXCHANGE = "membership", "exchange"
# With hints, a look only finds changes that send no hint. Without them, it decides how soon a request is noticed.
_POLL_WITH_HINTS_S, _POLL_S = 5.0, 2.0


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of a node."""

    name: str
    version: str
    timings: Timings
    queues: Sequence[str] = ("default",)
    slots: int = 10
    generation: int = 0
    leader: bool = False
    poll_s: float | None = None  # None: 5 s if the database has hints, otherwise 2 s
    retention: Retention = field(default_factory=Retention)


@dataclass(frozen=True, slots=True)
class Member:
    """One identity of this process, from when it joined until it left or was lost."""

    node_id: str
    lease: Lease

    @property
    def is_trusted(self) -> bool:
        """Whether this node may act now."""
        return not self.lease.lost


class Planning(Protocol):
    """What the exchange needs from the planner. May be called from any thread."""

    def waits_until(self, at_us: int) -> None:
        """Record that a run waits for this time, and has to be queued by then."""
        ...

    def has_planned_since(self, since: float) -> bool:
        """Whether all due schedules were planned since then, or this node may not plan. If neither, plan them."""
        ...


class _NoPlanning:
    """For a node without a planner."""

    def waits_until(self, at_us: int) -> None:
        """Do nothing: other nodes plan."""

    def has_planned_since(self, since: float) -> bool:
        return True


class NodeState:
    """The shared state of one node's loops."""

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
        wants: Callable[[What], bool] = wants_none,
        declared: Declarations | None = None,
        logs: RunLogs | None = None,
    ) -> None:
        """Make the state. `runners` are by kind of job; `declared` are the declarations of this program.

        `logs` collects what the runs of these runners write, if logs are kept.
        """
        self.ledger = ledger
        self.locks = locks
        self.jobs = jobs
        self.runners: list[Runner] = list(dict.fromkeys(runners.values()))
        self.runner_jobs = runner_jobs(jobs, runners)
        self.runtime = runtime
        self.settings = settings
        self.emit = emit
        self.wants = wants
        self.declared = declared
        self.logs = logs
        self.ttl_s = settings.timings.ttl_s
        self.poll_s = settings.poll_s or (_POLL_WITH_HINTS_S if ledger.dialect.has_hints else _POLL_S)
        self.stopped = runtime.event()
        self.clock = LedgerClock(runtime, longest_gap_s=max(self.ttl_s / 2, 2 * self.poll_s))
        self.same = SameLedger(ledger=ledger, runtime=runtime, emit=emit, noted=locks.noted)
        self.agenda = Agenda(self.poll_s)
        self.policies = JobPolicies(jobs, random=runtime.random, emit=emit)
        self.figures = FigureCounts(runtime, self.clock)
        self.lost_runs = LostNodeRuns(ledger, emit, ttl_s=self.ttl_s, count=self.figures.reaped)
        self.lost_identities = LostIdentities(self.lost_runs, self.runners, emit)
        self.gate = None if gate_locks is None else self._make_gate(gate_locks)
        self.planning: Planning = _NoPlanning()
        self.election: Election | None = None
        self.withdrawn: set[str] = set()  # jobs that this process has and its workers do not
        self.drain_is_asked = False  # a person has asked this process to take no more runs, finish, and leave
        self.is_done = False  # and it has finished; set by the exchange
        self.joined: Member | None = None  # set by the membership; `member` also checks that it may act
        self._disowned: tuple[Member, str] | None = None
        self._looks: list[Callable[[Look], None]] = []
        self._nodes_changed: list[Callable[[], None]] = []
        self._nodes_mark: object = None
        self._wakes: dict[str, Callable[[], None]] = {}

    # -- identity ----------------------------------------------------------------------------------------------------

    @property
    def member(self) -> Member | None:
        """The current identity, if it may act."""
        member = self.joined
        return member if member is not None and member.is_trusted and not self.is_disowned(member) else None

    @property
    def node_id(self) -> str | None:
        """The id of the current identity, if it may act."""
        member = self.member
        return member.node_id if member else None

    def disown(self, member: Member, reason: str) -> None:
        """Stop acting under this identity, which other nodes treat as dead. The membership joins under a new one."""
        self._disowned = (member, reason)
        self.wake(MEMBERSHIP)

    def is_disowned(self, member: Member) -> bool:
        """Whether this identity may no longer act, whatever its session says."""
        return self._disowned is not None and self._disowned[0] is member

    @property
    def reason_to_disown(self) -> str | None:
        """Why the last identity was disowned."""
        return None if self._disowned is None else self._disowned[1]

    @property
    def may_lead(self) -> bool:
        """Whether this node may do work that one node does for all: always, unless another node is the leader."""
        return self.election is None or self.election.is_leader

    @property
    def served_jobs(self) -> tuple[str, ...]:
        """The jobs whose runs this node can take."""
        return tuple(name for name in self.jobs if name not in self.withdrawn)

    def ask_to_drain(self) -> None:
        """Take no more runs, under any identity of this process, and leave when the present ones are done."""
        if not self.drain_is_asked:
            self.drain_is_asked = True
            reason = "a person asked for it: it takes no more runs, and leaves when those that it has are done"
            self.emit(Event(What.NODE_DRAINS, node=self.node_id, holder=self.settings.name, reason=reason))

    # -- calls between loops -----------------------------------------------------------------------------------------

    def hint(self) -> None:
        """Make the exchange look, because something may have changed in the ledger. May be called from any thread."""
        self.agenda.hint()
        self.wake(EXCHANGE)

    def wake(self, loop: str) -> None:
        """Make a loop step now. Does nothing if this node has no such loop."""
        if (wake := self._wakes.get(loop)) is not None:
            wake()

    def add_loop(self, name: str, wake: Callable[[], None]) -> None:
        """Register the function that wakes a loop."""
        self._wakes[name] = wake

    def on_look(self, callback: Callable[[Look], None]) -> None:
        """Call back after each look of the exchange, on its task."""
        self._looks.append(callback)

    def on_nodes_changed(self, callback: Callable[[], None]) -> None:
        """Call back on the task of the exchange when a look has found that nodes joined or ended."""
        self._nodes_changed.append(callback)

    def looked(self, look: Look) -> None:
        """Pass the result of a look to the callbacks."""
        if look.nodes_mark != self._nodes_mark:
            self._nodes_mark = look.nodes_mark
            for changed in self._nodes_changed:
                changed()
        for callback in self._looks:
            callback(look)

    # -- connections and tasks ---------------------------------------------------------------------------------------

    @contextmanager
    def connection(self) -> Iterator[LedgerConnection]:
        """Open a short-lived connection for rare writes."""
        connection = self.ledger.connect("node")
        try:
            yield connection
        finally:
            connection.rest()

    def in_background(self, name: str, work: Callable[[], None]) -> Task | None:
        """Call `work` on its own task, or directly if the process is exiting and can start no more threads."""
        try:
            return self.runtime.spawn(f"fencepost-{name}", work)
        except RuntimeError:
            work()
            return None

    def _make_gate(self, locks: Locks) -> Gate:
        def lost(run_id: int, token: int) -> None:
            for runner in self.runners:
                runner.stop(run_id, token, StopReason.LOST)

        return Gate(locks, runtime=self.runtime, ttl=self.ttl_s, on_lost=lost, emit=self.emit)
