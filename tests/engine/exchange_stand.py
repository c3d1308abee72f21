"""An exchange whose steps are made one by one, between a real ledger and runners that do as they are told."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fencepost.core.events import Event, What
from fencepost.core.policy import Policy
from fencepost.core.runs import Claim, StopReason
from fencepost.core.timings import Timings
from fencepost.engine.exchange import Exchange
from fencepost.engine.jobs import Job, Jobs
from fencepost.engine.node_state import NodeSettings, NodeState
from fencepost.engine.runner_jobs import RunnerJobs
from fencepost.engine.runners.outcome import Outcome
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.looking import Look
from fencepost.ledger.nodes import NewNode, join
from fencepost.threaded import ThreadedRuntime
from tests.ledger.scene import Scene

POLL_S = 5.0


class SkippingRuntime(ThreadedRuntime):
    """A machine on which time can be skipped."""

    skipped_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped_s


@dataclass(frozen=True)
class PuppetLease:
    token: int = 1


@dataclass(frozen=True)
class PuppetMember:
    """Who the node is."""

    node_id: str
    lease: PuppetLease = PuppetLease()
    is_trusted: bool = True


class PuppetPlanning:
    """Notes for what runs wait, and has always planned."""

    def __init__(self) -> None:
        self.waits: list[int] = []

    def waits_until(self, at_us: int) -> None:
        self.waits.append(at_us)

    def has_planned_since(self, since: float) -> bool:
        return True


class NoLocks:
    """The lease store of a node whose loops take no leases."""

    def noted(self, mark: object) -> None:
        return None


def node_state(ledger: Ledger, runtime: Any, jobs: Jobs, **more: Any) -> NodeState:
    """Return the state of a node that is not there: only what a single loop needs of it is real."""
    settings = NodeSettings(name="stand", version="test", timings=Timings.of(30.0), poll_s=POLL_S)
    words: dict[str, Any] = {"locks": NoLocks(), "settings": settings, "runners": {}}
    return NodeState(ledger=ledger, runtime=runtime, jobs=jobs, **words | more)


@dataclass(eq=False)
class PuppetRunner:
    """Has `slots` places, and ends nothing before it is told to."""

    slots: int = 10
    held: list[Claim] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    stopped: list[tuple[int, int, StopReason]] = field(default_factory=list)
    resumed: list[tuple[int, int]] = field(default_factory=list)

    def room(self) -> int:
        return max(0, self.slots - len(self.held))

    def running(self) -> int:
        return len(self.held)

    def submit(self, claims: Sequence[Claim]) -> None:
        self.held.extend(claims)

    def collect(self) -> list[Outcome]:
        outcomes, self.outcomes = self.outcomes, []
        return outcomes

    def stop(self, run_id: int, token: int, why: StopReason) -> None:
        self.stopped.append((run_id, token, why))

    def resume(self, runs: Collection[tuple[int, int]]) -> None:
        self.resumed.extend(runs)

    def end(self, claim: Claim, how: str = "succeeded", **more: Any) -> None:
        self.held.remove(claim)
        self.outcomes.append(Outcome(claim.run_id, claim.attempt, claim.token, how, **more))

    def end_all(self, how: str = "succeeded", **more: Any) -> None:
        for claim in list(self.held):
            self.end(claim, how, **more)


class Stand:
    """One exchange on `ledger`. `jobs` are those of each runner."""

    def __init__(
        self, ledger: Ledger, jobs: Sequence[Sequence[str]] = (("work",),), gate: Any = None, **policy: Any
    ) -> None:
        self.ledger = ledger
        self.scene = Scene(ledger)
        self.runners = [PuppetRunner() for _ in jobs]
        self.events: list[Event] = []
        self.wanted: tuple[What, ...] = ()
        self.looks: list[Look] = []
        self.runtime = SkippingRuntime()
        self.node = node_state(
            ledger,
            self.runtime,
            _jobs(jobs, policy),
            runners={"sync": self.runners[0]} | {f"also {each}": runner for each, runner in enumerate(self.runners)},
            emit=self.events.append,
            wants=lambda what: what in self.wanted,
        )
        self.node.runner_jobs = [
            RunnerJobs(runner, tuple(names))  # type: ignore[arg-type]
            for runner, names in zip(self.runners, jobs, strict=True)
        ]
        self.node.policies._random = lambda: 0.0
        self.node.gate = gate
        self.node.planning = planning = PuppetPlanning()
        self.waits = planning.waits
        self.node.on_look(self.looks.append)
        self.exchange = Exchange(self.node)
        self.be("first")

    @property
    def runner(self) -> PuppetRunner:
        return self.runners[0]

    def be(self, node_id: str | None) -> None:
        """Let the process be this node, or none."""
        if node_id is not None:
            join(self.ledger, NewNode(node_id, node_id, "grant", 1, 0, "test", 10, ("default",), ("work",)))
        self.node.joined = None if node_id is None else PuppetMember(node_id)  # type: ignore[assignment]

    def lose(self, suspended: Collection[Claim] = ()) -> None:
        """Let the process lose its identity, as a membership tells it."""
        member, self.node.joined = self.node.joined, None
        assert member is not None
        self.node.lost_identities.add(member.node_id, suspended, self.runtime.monotonic())

    def add(self, job: str = "work", count: int = 1, **wishes: Any) -> list[int]:
        return [self.scene.add_one(job, **wishes) for _ in range(count)]

    def step(self, after_s: float = 0.0) -> float:
        """Make one step; return in how many seconds it wants the next."""
        self.runtime.skipped_s += after_s
        return self.exchange.step(self.runtime.monotonic()) - self.runtime.monotonic()

    def settle(self, most: int = 20) -> float:
        """Make steps until the exchange wants to sleep; return for how long."""
        for _ in range(most):
            if (nap_s := self.step()) > 0:
                return nap_s
        raise AssertionError(f"it was not done after {most} steps, and does not sleep")

    def for_a_while(self, duration_s: float) -> list[float]:
        """Let time pass; return when steps were made, in seconds from now."""
        began_at, steps = self.runtime.monotonic(), []
        while (since_s := self.runtime.monotonic() - began_at) < duration_s and len(steps) < 10_000:
            steps.append(since_s)
            self.runtime.skipped_s += max(self.step(), 0.0005)
        return steps

    def close(self) -> None:
        self.exchange.close()
        self.scene.close()


def _jobs(names: Sequence[Sequence[str]], policy: dict[str, Any]) -> Jobs:
    def function() -> None: ...

    kind = policy.pop("type", "manual")
    return Jobs(
        Job.of(function, name=name, policy=Policy.of(kind, **policy)) for together in names for name in together
    )


@contextmanager
def stand(ledger: Ledger, *args: Any, **kwargs: Any) -> Iterator[Stand]:
    made = Stand(ledger, *args, **kwargs)
    try:
        yield made
    finally:
        made.close()
