"""Plays a story on a real ledger, with the planner, claims, endings, pauses and pruning that nodes use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

from fencepost import cron, every
from fencepost.app.operations import Operations
from fencepost.core.overlap import Decision, decide
from fencepost.core.policy import Overlap, Policy
from fencepost.core.retry import GiveUpLost, Rerun
from fencepost.core.rights import Scope
from fencepost.core.runs import Claim
from fencepost.core.schedule import Schedule
from fencepost.engine.jobs import Jobs
from fencepost.engine.planner import Planner
from fencepost.errors import NoSuchSchedule
from fencepost.ledger import nodes
from fencepost.ledger.jobs import NewJob, register
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NewNode
from fencepost.ledger.pruning import Retention, prune
from fencepost.ledger.reaping import reap
from tests.engine.exchange_stand import PuppetMember, node_state
from tests.ledger.scene import Scene, ending, failed
from tests.why.clocks import SetClock
from tests.why.dues import MINUTE_US, Daily, Form
from tests.why.story import STRETCHES, TAKES_US, Lane, LaneAct, Story

_SECOND_US = 1_000_000
_QUEUES = ("default",)
_OTHERS = ("another-job",)
_SIGNATURE = '{"parameters": []}'


def schedule_of(form: Form) -> Schedule:
    return cron(form.cron, tz=form.zone) if isinstance(form, Daily) else every(f"{form.hours}h")


class World:
    """The ledger, its clock, and what happens next."""

    def __init__(self, ledger: Ledger, clock: SetClock, story: Story) -> None:
        self.ledger = ledger
        self.story = story
        self.now_us = 0
        self._clock = clock
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._scene = Scene(ledger)
        self._lanes = {lane.job: lane for lane in story.lanes}
        self._runner: str | None = None  # the node that claims
        self._planner: Planner | None = None
        self._lives = 0
        self.operations = Operations(ledger, Scope.direct())

    def begin(self) -> None:
        self._set(STRETCHES[0][0] - MINUTE_US)
        policies = {
            lane.job: Policy.of("scheduled", misfire=lane.misfire, overlap=lane.overlap)
            for lane in self._lanes.values()
        }
        rows = [NewJob(name, "scheduled", each.to_json(), _SIGNATURE) for name, each in policies.items()]
        register(self.ledger, rows, generation=0)
        self._up()
        for lane in self.story.lanes:
            for act in lane.acts:
                self._at(act.at_us, lambda lane=lane, act=act: self._act(lane, act))  # type: ignore[misc]
            for due_us in lane.all_dues(STRETCHES[-1][1]):
                self._at(due_us - _SECOND_US, self._plan)
                self._at(due_us, self._claim)
        for each in self.story.outages:
            self._at(each.from_us, lambda each=each: self.down(others_live=each.others_live))  # type: ignore[misc]
            self._at(each.to_us, self._up)

    def play(self, until_us: int) -> None:
        """Let everything happen until then."""
        while self._events and self._events[0][0] <= until_us:
            at_us, _, event = heappop(self._events)
            self._set(max(at_us, self.now_us))
            event()
        self._set(until_us)

    def prune(self, retention: Retention) -> None:
        while prune(self.ledger, None, retention):
            pass

    def close(self) -> None:
        self._stop_planning()
        self._scene.close()

    def _at(self, at_us: int, event: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._events, (at_us, self._order, event))

    def _set(self, at_us: int) -> None:
        self.now_us = at_us
        self._clock.set(at_us)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _up(self) -> None:
        """Start two nodes that have the jobs; the planner of one of them plans what was missed."""
        self._leave_all()
        for name in ("first", "second"):
            self._join(name, tuple(self._lanes))
        self._claim()

    def down(self, *, others_live: bool) -> None:
        self._leave_all()
        self._runner = None
        if others_live:
            self._join("other", _OTHERS)
            self._at(self.now_us + MINUTE_US, self._plan)

    def _join(self, name: str, jobs: tuple[str, ...]) -> None:
        """Let a node join that plans, and that claims if it has the jobs."""
        node_id = self._joined(name, jobs)
        if self._planner is None:
            node = node_state(self.ledger, self.ledger.runtime, Jobs([]), emit=lambda _: None)
            node.joined = PuppetMember(node_id)  # type: ignore[assignment]
            self._planner = Planner(node)
        if jobs != _OTHERS:
            self._runner = node_id

    def _joined(self, name: str, jobs: tuple[str, ...]) -> str:
        self._lives += 1
        node_id = f"{name}-{self._lives}"
        nodes.join(self.ledger, NewNode(node_id, node_id, "grant", self._lives, 0, "test", 10, _QUEUES, jobs))
        return node_id

    def _leave_all(self) -> None:
        self._stop_planning()
        for node in nodes.living_nodes(self.ledger):
            nodes.leave(self.ledger, node.id)

    def _stop_planning(self) -> None:
        if self._planner is not None:
            self._planner.close()
        self._planner = None

    def _plan(self) -> None:
        if self._planner is None:
            return
        self._planner._serving.doubt()
        self._planner._pause_ends._must_read = True
        self._planner._next_due_us = 0
        now = self.now_us / _SECOND_US
        for _ in range(50):
            if self._planner.step(now) > now:
                return
        raise AssertionError("the planner does not come to an end")

    # -- runs --------------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Claim what is due, and decide how it ends."""
        self._plan()
        if self._runner is None:
            return
        for run in self.operations.runs(states=["queued"], limit=500):
            lane = self._lanes[run.job]
            outcome = self._outcome(lane, run.due_at) if run.ticks == 1 and run.attempts == 0 else "succeeds"
            if outcome == "cancelled":
                self.operations.cancel(run.id, by="ann", reason="not now")
            node = self._joined("victim", tuple(self._lanes)) if outcome.startswith("node dies") else self._runner
            claimed = self._scene.claim(node=node, jobs=(run.job,), limit=1, decide=self._decide)
            for each in claimed.claims:
                self._begin(each, node)

    def _begin(self, claim: Claim, node: str) -> None:
        lane = self._lanes[claim.job]
        due_us = self._scene.run(claim.run_id)["due_at"]
        outcome = "succeeds" if claim.attempt > 1 or not self._is_regular(claim) else lane.outcomes[due_us]
        match outcome:
            case "fails":
                self._at(self.now_us + TAKES_US, lambda: self._finish(failed(claim, error_code="E", error="it broke")))
            case "node dies" | "node dies for good":
                self._at(self.now_us + MINUTE_US, lambda: self._die(node, is_for_good=outcome.endswith("good")))
            case "long":
                following = [each for each in lane.all_dues(STRETCHES[-1][1]) if each > due_us]
                self._at(following[0] + MINUTE_US, lambda: self._finish(ending(claim)))
            case _:
                self._at(self.now_us + TAKES_US, lambda: self._finish(ending(claim)))

    def _is_regular(self, claim: Claim) -> bool:
        row = self._scene.run(claim.run_id)
        return bool(row["ticks"] == 1 and self.now_us - row["due_at"] < MINUTE_US)

    def _outcome(self, lane: Lane, due: Any) -> str:
        due_us = round(due.timestamp() * _SECOND_US)
        return lane.outcomes[due_us] if self.now_us - due_us < MINUTE_US else "succeeds"

    def _decide(self, job: str, *, is_tick: bool, attempts: int, key_is_taken: bool) -> Decision:
        overlap = Overlap(self._lanes[job].overlap)
        return decide(overlap, is_tick=is_tick, attempts=attempts, key_is_taken=key_is_taken)

    def _finish(self, ended: Any) -> None:
        assert not self._scene.finish(ended).refused

    def _die(self, node: str, *, is_for_good: bool) -> None:
        """Let a node die that has a run; another one takes over."""
        self.ledger.write(lambda cursor: nodes.died(self.ledger, cursor, node, "its session has expired"))
        fate = GiveUpLost("Lost", "it was lost") if is_for_good else Rerun()
        reap(self._scene.connection, node=node, limit=100, decide=lambda *_: fate)
        self._claim()

    # -- people ------------------------------------------------------------------------------------------------------

    def _act(self, lane: Lane, act: LaneAct) -> None:
        schedules = self.operations.schedules
        with suppress(NoSuchSchedule):  # resumed after it was deleted
            match act.what:
                case "pause":
                    until = None if act.until_us is None else _iso(act.until_us)
                    schedules.pause(lane.id, by="ann", until=until)
                case "resume":
                    schedules.resume(lane.id, by="ann")
                case "delete":
                    schedules.delete(lane.id, by="ann")
                case _ if act.form is not None:
                    schedules.put(lane.id, lane.job, schedule_of(act.form), by="ann")


def _iso(at_us: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_us / _SECOND_US, UTC).isoformat()
