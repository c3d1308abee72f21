"""The planner: due schedules become runs, a little ahead of time.

A tick is planned up to a horizon before it is due, and its run is queued with the due time as the time from which it
may be claimed. So the due times are computed in advance, and at the due time nodes only claim. Every node plans; the
second one finds the schedule's row locked or `planned_through` advanced.

The job's misfire policy decides here about due times that were missed while no node planned. A due time never vanishes:
it becomes a run, part of a merged run, or a row in the state `misfired` with its range.

A schedule that this node cannot plan is skipped and not changed, because another node may be able to plan it. A
schedule whose job no living node has is not planned (`serving`); when such a node joins, the misfire policy decides.
"""

from __future__ import annotations

from fencepost.core.clock_gate import Leap
from fencepost.core.events import Event, What
from fencepost.core.noted import Noted
from fencepost.engine.loop_step import LedgerStep
from fencepost.engine.node_state import NodeState
from fencepost.engine.pause_ends import PauseEnds
from fencepost.engine.serving import Serving
from fencepost.engine.ticks import ClockLeapt, Ticks
from fencepost.errors import LedgerUnavailable
from fencepost.ledger.journal import journal
from fencepost.ledger.looking import Look
from fencepost.ledger.planning import plan
from fencepost.ledger.run_rows import HORIZON_US

_HORIZON_S = HORIZON_US / 1_000_000
_BATCH = 500  # schedules per transaction; `bench/ticks.py` plans a thousand in two
_SHORTEST_REST_S = 10.0  # a look finds what is due; this is for looks that were lost
_WHILE_CLOSED_S = 2.0  # a leap of the clock needs a person, or a few seconds
_RECHECK_S = 1.0  # half the horizon: a due time that an unplannable schedule hides is still planned in time
_AT_ONCE = 0  # the next due time is unknown, so plan at once


class Planner(LedgerStep):
    """The step that turns ticks into runs."""

    name = "planner"
    acts_only_as_member = True

    def __init__(self, node: NodeState) -> None:
        super().__init__(node)
        self._same = node.same
        self._same.watch(self._connection)
        self._clock = node.clock
        self._serving = Serving(node.emit, on_queued=node.hint)
        self._ticks = Ticks(
            horizon_us=HORIZON_US,
            emit=node.emit,
            is_believed=lambda now_us: node.clock.observe(now_us, since=self._asked_at),
            is_served=self._serving.is_served,
        )
        self._pause_ends = PauseEnds(node.ledger, node.clock, node.runtime)
        self._rest_s = max(node.poll_s * 2, _SHORTEST_REST_S)
        self._next_due_us: int | None = _AT_ONCE
        self._next_waiting_us: int | None = None
        self._unplannable: list[str] = []
        self._planned_until_us = 0
        self._recheck_at = float("inf")
        self._planned_all_at = self._asked_at = float("-inf")
        node.planning = self
        node.on_nodes_changed(self._serving.nodes_changed)
        node.on_look(self._looked)

    def due_at(self, next_due_us: int | None, next_waiting_us: int | None) -> None:
        """Record when a schedule is due next, and the next time for which a run waits, as found by a look."""
        if not self._may_be_unplannable(next_due_us):
            self._next_due_us = next_due_us
        self._next_waiting_us = next_waiting_us

    def waits_until(self, at_us: int) -> None:
        """Record that a run waits for this time."""
        self._next_waiting_us = _sooner(at_us, self._next_waiting_us)
        self._node.wake(self.name)

    def has_planned_since(self, since: float) -> bool:
        """Whether all due schedules were planned since then, or this node may not plan. If neither, wake the loop."""
        is_idle = not self._node.may_lead or self._same.is_held or not self._clock.is_believed
        if is_idle or self._planned_all_at >= since:
            return True
        self._serving.doubt()
        self._next_due_us = _AT_ONCE
        self._node.wake(self.name)
        return False

    def step(self, now: float) -> float:
        """Plan what is due within the horizon."""
        if self._node.member is None or not self._node.may_lead or self._same.is_held:
            return now + self._rest_s
        for leap in self._clock.unreported_leaps():
            self._report_leap(leap)
        if not self._clock.is_believed:
            return self._wait_for_the_clock(now)
        self._read_serving(now)
        if now >= self._pause_ends.due_at and self._pause_ends.end(self._connection, now):
            self._next_due_us = _AT_ONCE
        if self._plan_from(now) > now:
            return self._sleep_until(now)
        return self._plan(now)

    def _looked(self, look: Look) -> None:
        """Use the result of a look, and make a step."""
        self.due_at(look.next_due_at_us, look.next_waiting_at_us)
        self._pause_ends.noted(look.journal_mark)
        self._node.wake(self.name)

    def _read_serving(self, now: float) -> None:
        if now >= self._serving.due_at and self._serving.read(self._connection, now):
            self._next_due_us = _AT_ONCE

    def _plan(self, now: float) -> float:
        self._next_due_us = None  # cleared first: a look may set a new time while this plans
        self._asked_at = now
        try:
            without = self._ticks.unplannable(self._clock.there_us())
            planned = plan(
                self._connection, horizon_us=HORIZON_US, limit=_BATCH, decide=self._ticks.plan, without=without
            )
        except ClockLeapt:
            self._next_due_us = _AT_ONCE
            return now
        except Exception as error:
            self._next_due_us = _AT_ONCE
            if isinstance(error, LedgerUnavailable):
                self._clock.unanswered()
            raise
        self._clock.observe(planned.now_us, since=now)
        if planned.has_served:
            self._serving.doubt()
        self._same.planned(planned.through)
        self._node.figures.unrun(planned.unrun)
        self._note_unplannable(now, planned.now_us)
        self._next_due_us = _AT_ONCE if planned.more else _sooner(planned.next_due_at_us, self._next_due_us)
        if self._next_waiting_us is not None and self._next_waiting_us <= planned.now_us + HORIZON_US:
            self._next_waiting_us = None  # that run is queued; a look finds the next one
        if not planned.more and not planned.has_served:
            self._planned_all_at = now
        if planned.runs:
            self._node.hint()
        return now if planned.more else self._sleep_until(now)

    def _note_unplannable(self, now: float, now_us: int) -> None:
        """Plan again soon if there are unplannable schedules: a look may return the due time of one of those."""
        self._planned_until_us = now_us + HORIZON_US
        self._unplannable = self._ticks.unplannable(now_us)
        self._recheck_at = now + _RECHECK_S if self._unplannable else float("inf")

    def _may_be_unplannable(self, next_due_us: int | None) -> bool:
        """Whether a due time that a look returned may be that of a schedule which this node cannot plan."""
        return bool(self._unplannable) and next_due_us is not None and next_due_us <= self._planned_until_us

    def _plan_from(self, now: float) -> float:
        """Return when the next tick, or the next time for which a run waits, comes within the horizon."""
        if self._next_due_us == _AT_ONCE or now >= self._recheck_at:
            return now
        known = [at for at in (self._next_due_us, self._next_waiting_us) if at is not None]
        return self._clock.here(min(known)) - _HORIZON_S if known else float("inf")

    def _sleep_until(self, now: float) -> float:
        known = (self._plan_from(now), self._recheck_at, self._serving.due_at, self._pause_ends.due_at)
        wake_at = min(now + self._rest_s, *known)
        if wake_at - now > 1.0:
            self._connection.rest()
        # A schedule that another node is planning right now shows as due until it has committed.
        return max(wake_at, now + 0.02)

    def _wait_for_the_clock(self, now: float) -> float:
        is_believed = self._clock.observe(self._ledger.now_us(self._connection), since=now)
        return now if is_believed else now + _WHILE_CLOSED_S

    def _report_leap(self, leap: Leap) -> None:
        stops = "this node plans nothing and declares no node dead until the clock is back or this node is restarted"
        why = f"{leap}; {stops}" if leap.is_ahead else f"{leap}; nothing that was planned is planned again"
        self._node.emit(Event(What.CLOCK_LEAPT, reason=why, node="-"))
        journal(self._ledger, self._connection, what=Noted.CLOCK_LEAPT, reason=why)


def _sooner(at_us: int | None, other_us: int | None) -> int | None:
    return min((each for each in (at_us, other_us) if each is not None), default=None)
