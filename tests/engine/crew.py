"""Several nodes in one process, on one ledger: what the tests of the loops are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from fencepost.core.events import Event
from fencepost.core.policy import Policy
from fencepost.core.runs import Requested
from fencepost.core.runtime import Runtime
from fencepost.core.schedule import Schedule, schedule_to_json
from fencepost.core.timings import Timings
from fencepost.engine.context import RunContext
from fencepost.engine.invoke import invoke
from fencepost.engine.jobs import Job, Jobs
from fencepost.engine.loop import Loop
from fencepost.engine.loop_step import LoopStep
from fencepost.engine.loops import LOOPS, MakeStep
from fencepost.engine.node import Node
from fencepost.engine.node_state import NodeSettings, NodeState
from fencepost.engine.runners.runner import Runner
from fencepost.engine.runners.thread import ThreadRunner
from fencepost.errors import StoreUnavailable
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.ledger import jobs as job_rows
from fencepost.ledger.deploys import sync_code
from fencepost.ledger.history import RunRow, runs
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.recording import record
from fencepost.ledger.schedule_rows import NewSchedule
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()
TTL = "6s"  # of a node that is to stay: longer than a machine with too much to do may keep it waiting
SHORT_TTL = "2s"  # of a node that is to be lost
OFTEN = {"renew_every": "600ms", "retry_every": "300ms"}  # so that what was revoked is noticed soon all the same

Found = TypeVar("Found")


S = TypeVar("S", bound=LoopStep)


def step_of(node: Node, kind: type[S]) -> S:
    """Return the step of a node's loop."""
    [step] = [step for step in node._steps if isinstance(step, kind)]
    return step


def loop_of(node: Node, name: str) -> Loop:
    """Return a loop of a node."""
    [loop] = [loop for loop in node._loops if loop.name == name]
    return loop


def job(function: Callable[..., Any], schedule: Schedule | None = None, **policy: Any) -> Job:
    kind = policy.pop("type", "manual" if schedule is None else "scheduled")
    return Job.of(function, policy=Policy.of(kind, **policy), schedules=[schedule] if schedule else [])


class Crew:
    """Nodes with these jobs on one ledger; each has a ledger object, and so connections, of its own."""

    def __init__(self, url: str, jobs: Sequence[Job], runtime: Runtime = RUNTIME) -> None:
        self.url = url
        self.jobs = Jobs(jobs)
        self.runtime = runtime
        self.ledger = open_ledger(url, runtime)
        self.events: list[Event] = []
        self.nodes: list[Node] = []
        self._locks: list[Locks] = []
        self._ledgers = [self.ledger]
        self.publish()

    def publish(self) -> None:
        rows = [
            job_rows.NewJob(each.name, each.policy.type, each.policy.to_json(), each.signature.to_json())
            for each in self.jobs.values()
        ]
        job_rows.register(self.ledger, rows, generation=0)
        declared = [
            NewSchedule(each.id, name, schedule_to_json(each.schedule), "{}")
            for name, one in self.jobs.items()
            for each in one.schedules
        ]
        sync_code(self.ledger, generation=0, jobs=tuple(self.jobs), schedules=declared)

    def node(
        self,
        *,
        url: str | None = None,
        gate: str | None = None,
        slots: int = 10,
        ttl: str = TTL,
        version: str = "test",
        loops: tuple[MakeStep, ...] = LOOPS,
        **settings: Any,
    ) -> Node:
        ledger = open_ledger(url or self.url, self.runtime)
        self._ledgers.append(ledger)
        locks = self._connect(ledger.url.lease_url())
        state = NodeState(
            ledger=ledger,
            locks=locks,
            gate_locks=None if gate is None else self._connect(gate),
            jobs=self.jobs,
            runners=self.runners(ledger, url or self.url, slots),
            runtime=self.runtime,
            settings=NodeSettings(
                name=f"node-{len(self.nodes)}", version=version, timings=_timings(ttl), slots=slots, **settings
            ),
            emit=self.events.append,
        )
        node = Node(state, loops=loops)
        self.nodes.append(node)
        node.start()
        return node

    def runners(self, ledger: Ledger, url: str, slots: int) -> dict[str, Runner]:
        timeouts = {name: each.policy.timeout_s for name, each in self.jobs.items()}
        runner = ThreadRunner(
            lambda claim: invoke(self.jobs[claim.job], claim, context),
            timeouts=timeouts,
            runtime=self.runtime,
            slots=slots,
        )
        context = RunContext(node="test", runtime=self.runtime, ledger=lambda: ledger, standing=runner)
        return {"sync": runner}

    def enqueue(self, name: str, *, count: int = 1, **request: Any) -> list[int]:
        policy = self.jobs[name].policy
        asked = [Requested(name, policy.type, **request) for _ in range(count)]
        return [each.run_id for each in self.ledger.write(lambda cursor: record(self.ledger, cursor, asked))]

    def runs(self) -> list[RunRow]:
        return runs(self.ledger, limit=5000)

    def until_state(self, state: str, count: int, deadline_s: float = 30.0) -> list[RunRow]:
        def found() -> list[RunRow] | None:
            rows = [row for row in self.runs() if row.state == state]
            return rows if len(rows) >= count else None

        try:
            return until(seldom(found), deadline_s, f"{count} runs are {state}")
        except AssertionError as error:
            raise AssertionError(f"{error}; {self._told()}") from None

    def _told(self) -> str:
        told = [f"{event.what}: {event.reason}" for event in self.events if event.reason]
        return f"there are {Counter(row.state for row in self.runs())}, and it was told: {told[-10:]}"

    def whats(self) -> list[str]:
        return [str(event.what) for event in self.events]

    def close(self) -> None:
        for node in self.nodes:
            node.stop(5.0)
        for locks in self._locks:
            locks.close()
        for ledger in self._ledgers:
            ledger.close()

    def _connect(self, url: str) -> Locks:
        locks = Locks(store_from_url(url, self.runtime), runtime=self.runtime, observers=[self.events.append])
        self._locks.append(locks)
        for _ in range(3):  # a busy machine may not answer in time at once
            with suppress(StoreUnavailable):
                locks.start()
                return locks
        locks.start()
        return locks


def _timings(ttl: str) -> Timings:
    return Timings.of(ttl, **OFTEN) if ttl == TTL else Timings.of(ttl)


def seldom(ask: Callable[[], Found]) -> Callable[[], Found]:
    """Ask the ledger at most twenty times a second: whoever asks without a pause takes the processor from the nodes."""
    pause_s = 0.0

    def asked() -> Found:
        nonlocal pause_s
        RUNTIME.sleep(pause_s)
        pause_s = 0.04
        return ask()

    return asked


@contextmanager
def crew(url: str, jobs: Sequence[Job], runtime: Runtime = RUNTIME) -> Iterator[Crew]:
    made = Crew(url, jobs, runtime)
    try:
        yield made
    finally:
        made.close()
