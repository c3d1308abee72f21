"""What the loops of a node share: who the node is, what it knows of its ledger, and how one loop wakes another.

Every loop is made with this and nothing else, and no loop knows another one. What one needs of another is here: who
this process is (`member`), whether it may lead (`may_lead`), whether the ledger is held (`same`), what lost identities
left behind (`lost_identities`), what a look found (`on_look`), what has been planned (`planning`). An attribute is set
by one loop and read by the others, from any thread.
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
from fencepost.engine.gate import Gate
from fencepost.engine.giving_up import LostNodeRuns
from fencepost.engine.job_policies import JobPolicies
from fencepost.engine.jobs import Jobs
from fencepost.engine.ledger_clock import LedgerClock
from fencepost.engine.logs.run_logs import RunLogs
from fencepost.engine.lost_identities import LostIdentities
from fencepost.engine.runner_jobs import runner_jobs
from fencepost.engine.runners.runner import Runner
from fencepost.engine.same_ledger import SameLedger
from fencepost.engine.tidings import nobody
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
# Where hints arrive, a look is only for what no hint tells of; where none do, it decides how soon a request is noticed.
_POLL_WITH_HINTS_S, _POLL_S = 5.0, 2.0


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
    """What the exchange needs of the planner. May be called from any thread."""

    def waits_until(self, at_us: int) -> None:
        """Note that a run waits for this time, and has to be queued by then."""
        ...

    def has_planned_since(self, since: float) -> bool:
        """Whether all that is due was planned since then, or this node may not plan; if neither, have it planned."""
        ...


class _NoPlanning:
    """For a node without a planner."""

    def waits_until(self, at_us: int) -> None:
        """Leave it to other nodes."""

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
        wants: Callable[[What], bool] = nobody,
        declared: Declarations | None = None,
        logs: RunLogs | None = None,
    ) -> None:
        """Make it. `runners` are by the kind of job they execute; `declared` is what this program keeps on record.

        `logs` has what the runs of these runners write, if their logs are kept.
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
        self.lost_runs = LostNodeRuns(ledger, emit, ttl_s=self.ttl_s)
        self.lost_identities = LostIdentities(self.lost_runs, self.runners, emit)
        self.gate = None if gate_locks is None else self._make_gate(gate_locks)
        self.planning: Planning = _NoPlanning()
        self.election: Election | None = None
        self.withdrawn: set[str] = set()  # jobs that this process knows, and its workers do not
        self.joined: Member | None = None  # set by the membership; whether it may act is another question: `member`
        self._disowned: tuple[Member, str] | None = None
        self._looks: list[Callable[[Look], None]] = []
        self._nodes_changed: list[Callable[[], None]] = []
        self._nodes_mark: object = None
        self._wakes: dict[str, Callable[[], None]] = {}

    # -- who this node is --------------------------------------------------------------------------------------------

    @property
    def member(self) -> Member | None:
        """Who this process is, if it may act."""
        member = self.joined
        return member if member is not None and member.is_trusted and not self.is_disowned(member) else None

    @property
    def node_id(self) -> str | None:
        """The present identity, while this node may act."""
        member = self.member
        return member.node_id if member else None

    def disown(self, member: Member, reason: str) -> None:
        """Be this no longer: others act as if it were dead. The membership joins under a new identity."""
        self._disowned = (member, reason)
        self.wake(MEMBERSHIP)

    def is_disowned(self, member: Member) -> bool:
        """Whether this identity must not act any more, whatever its session says."""
        return self._disowned is not None and self._disowned[0] is member

    @property
    def reason_to_disown(self) -> str | None:
        """Why the last identity was disowned."""
        return None if self._disowned is None else self._disowned[1]

    @property
    def may_lead(self) -> bool:
        """Whether this node may do what one node does for all: always, unless there is a leader."""
        return self.election is None or self.election.is_leader

    @property
    def served_jobs(self) -> tuple[str, ...]:
        """The jobs whose runs this node can take."""
        return tuple(name for name in self.jobs if name not in self.withdrawn)

    # -- what loops say to each other --------------------------------------------------------------------------------

    def hint(self) -> None:
        """Have the exchange look: something may have changed in the ledger. May be called from any thread."""
        self.agenda.hint()
        self.wake(EXCHANGE)

    def wake(self, loop: str) -> None:
        """Have a loop make a step now. If this node has no such loop, nothing happens."""
        if (wake := self._wakes.get(loop)) is not None:
            wake()

    def add_loop(self, name: str, wake: Callable[[], None]) -> None:
        """Let a loop be woken by its name."""
        self._wakes[name] = wake

    def on_look(self, callback: Callable[[Look], None]) -> None:
        """Call back after each look of the exchange, on its task."""
        self._looks.append(callback)

    def on_nodes_changed(self, callback: Callable[[], None]) -> None:
        """Call back when a look has found that nodes came or went, on the task of the exchange."""
        self._nodes_changed.append(callback)

    def looked(self, look: Look) -> None:
        """Pass on what a look found."""
        if look.nodes_mark != self._nodes_mark:
            self._nodes_mark = look.nodes_mark
            for changed in self._nodes_changed:
                changed()
        for callback in self._looks:
            callback(look)

    # -- small things ------------------------------------------------------------------------------------------------

    @contextmanager
    def connection(self) -> Iterator[LedgerConnection]:
        """Open a short-lived connection for rare writes."""
        connection = self.ledger.connect("node")
        try:
            yield connection
        finally:
            connection.rest()

    def beside(self, name: str, work: Callable[[], None]) -> Task | None:
        """Do something on a task of its own; here and now if the process ends and can start no more threads."""
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
