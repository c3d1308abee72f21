"""A runtime that starts nothing, a runner that begins nothing, and a node whose loops are stepped one at a time.

The parts are the engine's own. Only who calls them, and when, is decided here: so a path has the same round trips each
time it is played.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.core.events import Event
from fencepost.core.lease import Phase
from fencepost.core.runs import Claim, StopReason
from fencepost.core.timings import Timings
from fencepost.engine.context import RunContext
from fencepost.engine.exchange import Exchange
from fencepost.engine.invoke import invoke
from fencepost.engine.jobs import Job, Jobs
from fencepost.engine.listening import Listening
from fencepost.engine.membership import Membership
from fencepost.engine.node import Node
from fencepost.engine.node_state import NodeSettings, NodeState
from fencepost.engine.planner import Planner
from fencepost.engine.reaper import Reaper
from fencepost.engine.runners import verdicts
from fencepost.engine.runners.outcome import Outcome
from fencepost.engine.trust import NodeTrust
from fencepost.leases.kept_session import KeptSession
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.leases.settler import Settler
from fencepost.ledger.ledger import Ledger
from fencepost.threaded import ThreadedRuntime
from tests.engine.crew import step_of

TTL_S = 30.0
BY_HAND = "by hand"
_LONGEST_REAL_SLEEP_S = 0.002  # a moment for the servers to do what is waited for; the rest of the time is skipped
_AT_ONCE = ("fencepost-connect",)  # whoever asks for it waits for it


@dataclass
class Skipped:
    """How much time was skipped, for all who live in one play, and what happens whenever somebody sleeps."""

    meanwhile: Callable[[], None] = lambda: None
    s: float = 0.0


class Unstarted:
    """A task that nobody starts."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.work = work

    def join(self, timeout: float | None = None) -> None:
        """It is over."""

    def is_alive(self) -> bool:
        return False


class HandRuntime(ThreadedRuntime):
    """Starts nothing, and skips time instead of sleeping."""

    def __init__(self, skipped: Skipped | None = None) -> None:
        self.skipped = skipped or Skipped()
        self.tasks: list[Unstarted] = []

    def monotonic(self) -> float:  # type: ignore[override]
        return ThreadedRuntime.monotonic() + self.skipped.s

    def random(self) -> float:
        return 0.5

    def sleep(self, duration_s: float) -> None:
        time.sleep(min(duration_s, _LONGEST_REAL_SLEEP_S))
        self.skipped.s += duration_s
        self.skipped.meanwhile()

    def spawn(self, name: str, work: Callable[[], None]) -> Any:
        if name in _AT_ONCE:
            work()
        self.tasks.append(Unstarted(name, work))
        return self.tasks[-1]

    def after_fork(self, owner: object, forget: Callable[[], None]) -> None:
        """The process that forks has opened nothing."""

    def at_exit(self, owner: object, close: Callable[[], None]) -> None:
        """Whoever made it closes it."""

    def owners(self, name: str) -> list[Any]:
        """Return whose tasks of this name there are."""
        return [task.work.__self__ for task in self.tasks if task.name == name]  # type: ignore[attr-defined]


Wanted = Callable[[Claim], bool]


class HandRunner:
    """Executes what it has when it is told to."""

    def __init__(self, jobs: Mapping[str, Job], runtime: HandRuntime, ledger: Callable[[], Ledger]) -> None:
        self._jobs = jobs
        self.held: list[Claim] = []
        self.under_way: list[Claim] = []
        self.outcomes: list[Outcome] = []
        self._context = RunContext(node=BY_HAND, runtime=runtime, ledger=ledger, standing=self, ttl_s=TTL_S)
        self.trusts = NodeTrust(runtime.monotonic)
        self.suspended_now: set[tuple[int, int]] = set()

    def work(self, is_wanted: Wanted = lambda _: True) -> None:
        """Execute what is held, one after the other."""
        while wanted := [claim for claim in self.held if is_wanted(claim)]:
            claim = wanted[0]
            self.held.remove(claim)
            self.under_way.append(claim)
            outcome = invoke(self._jobs[claim.job], claim, self._context)
            self.under_way.remove(claim)
            self.outcomes.append(outcome)

    def end(self, claim: Claim, outcome: Outcome) -> None:
        """Let a claim end like this, without executing it."""
        self.held.remove(claim)
        self.outcomes.append(outcome)

    # -- the contract of a runner

    def start(self, on_outcome: Callable[[], None]) -> None:
        """Begin."""

    def room(self) -> int:
        return max(0, 20 - len(self.held))

    def submit(self, claims: Sequence[Claim]) -> None:
        self.held.extend(claims)

    def collect(self) -> list[Outcome]:
        outcomes, self.outcomes = self.outcomes, []
        return outcomes

    def running(self) -> int:
        return len(self.held) + len(self.under_way)

    def stop(self, run_id: int, token: int, why: StopReason) -> None:
        for claim in [each for each in self.held if (each.run_id, each.token) == (run_id, token)]:
            self.end(claim, verdicts.stopped_unstarted(claim, why))

    def trust(self, until: float) -> None:
        self.trusts.extend(until)

    def lose(self) -> None:
        self.trusts.lose()
        for claim in list(self.held):
            self.end(claim, verdicts.lost(claim))

    def suspend(self) -> list[Claim]:
        self.trusts.lose()
        kept = [claim for claim in self.held if not self._jobs[claim.job].policy.stops_in_doubt]
        self.suspended_now |= {(claim.run_id, claim.token) for claim in kept}
        for claim in [claim for claim in self.held if claim not in kept]:
            self.end(claim, verdicts.lost(claim))
        return kept

    def resume(self, runs: Collection[tuple[int, int]]) -> None:
        self.suspended_now -= set(runs)

    def take_back(self) -> None:
        for claim in list(self.held):
            self.end(claim, verdicts.returned(claim))

    def close(self, grace_s: float) -> None:
        self.take_back()

    # -- and its standing

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        return None if (run_id, token) in self.suspended_now else self.trusts.stopped(run_id, token)

    def suspended(self, run_id: int, token: int) -> bool:
        return (run_id, token) in self.suspended_now


class HandNode:
    """A node of which nothing moves by itself."""

    def __init__(self, name: str, ledger: Ledger, jobs: Jobs, runtime: HandRuntime, runner: Any = None) -> None:
        """Make it; `runner` is what executes its jobs, by hand if it is not given."""
        self.name = name
        self.ledger = ledger
        self.runtime = runtime
        self.events: list[Event] = []
        self.troubles: list[Exception] = []
        self.locks = Locks(store_from_url(ledger.url.lease_url(), runtime), runtime=runtime)
        self.runner = HandRunner(jobs, runtime, lambda: ledger) if runner is None else runner
        self.state = NodeState(
            ledger=ledger,
            locks=self.locks,
            jobs=jobs,
            runners={"sync": self.runner},
            runtime=runtime,
            settings=NodeSettings(name=name, version="test", timings=Timings.of(TTL_S)),
            emit=self.events.append,
        )
        self.node = Node(self.state)
        self.membership = step_of(self.node, Membership)
        self.exchange = step_of(self.node, Exchange)
        # It is in the middle of its life, and has planned what was due.
        self.exchange._planned_first.may_claim = lambda *_: True  # type: ignore[method-assign]
        self.planner = step_of(self.node, Planner)
        self.reaper = step_of(self.node, Reaper)

    @property
    def node_id(self) -> str:
        assert self.state.node_id is not None
        return self.state.node_id

    @property
    def kept(self) -> list[KeptSession]:
        return [kept for kept in self.runtime.owners("fencepost-renewer") if kept._machine.phase is Phase.HELD]

    def step(self, loop: Callable[[float], Any]) -> None:
        """Make one step of a loop; what it raises is noted, as a node's loops do, and it goes on."""
        try:
            loop(self.runtime.monotonic())
        except Exception as error:  # noqa: BLE001 - as above
            self.troubles.append(error)

    def beat(self, now: float = 0.0) -> None:
        """Do what the tasks of sessions do: renew, settle what is owed, close what is retired."""
        for settler in self.runtime.owners("fencepost-settler"):
            _settle(settler)
        for kept in self.kept:
            kept._machine.expire(self.runtime.monotonic())
            if not kept._close_if_idle():
                kept._renew()

    def join(self, now: float = 0.0) -> None:
        self.membership.step(self.runtime.monotonic())

    @property
    def under_way(self) -> list[Claim]:
        """What is being executed right now."""
        return self.runner.under_way if isinstance(self.runner, HandRunner) else []

    def turn(self, is_wanted: Wanted = lambda _: True) -> None:
        """Do what there is to do: a few steps of everything. Of the runs only those that are wanted are executed."""
        self.step(self.beat)
        self.step(self.join)
        self.step(self.reaper.step)
        self.step(self.planner.step)
        for _ in range(3):
            self.state.hint()
            self.step(self.exchange.step)
        if isinstance(self.runner, HandRunner):
            self.runner.work(is_wanted)
        self.step(self.exchange.step)

    def close(self) -> None:
        for step in self.node._steps:
            if step is not self.membership:  # it does not leave: it is as if it had been killed
                step.interrupt()
                step.close()
        step_of(self.node, Listening).settle(0.0)
        self.locks._store.shutdown()
        self.ledger.close()


def _settle(settler: Settler) -> None:
    for owed in list(settler._owed):
        if settler._is_settled(owed):
            settler._strike_out(owed)
