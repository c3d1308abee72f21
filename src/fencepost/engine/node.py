"""A node: one participating process, its loops, and how they begin and end together.

::

    start ──▶ join ──▶ loops: membership · exchange · planner · reaper · pruner · pauses · listener · figures
                                   │ (· lateness, where jobs have an SLA · deploys, where a program declares them)
                                   │ session lost: stop what runs, join under a new identity
    stop ──▶ claim nothing more ──▶ hand back claims not started ──▶ give the rest its grace ──▶ leave

A node that a person has asked to drain claims nothing more, waits for its runs as long as they take, and then stops
itself.

`engine.loops` lists the loops, `engine.loop_step` defines one, and `engine.node_state` is what they share. No node is
special: a leader, if the application wants one, only spares the other nodes the planning.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from fencepost.core.events import Event, What
from fencepost.core.names import LEADER_LEASE
from fencepost.engine.loop import Loop
from fencepost.engine.loop_step import LoopStep
from fencepost.engine.loops import LOOPS, MakeStep, steps_of
from fencepost.engine.node_state import EXCHANGE, NodeState
from fencepost.engine.troubles import Troubles
from fencepost.errors import FencepostError, LedgerHeld

_WHILE_HELD_S = 1.0  # how soon work continues after an operator has accepted the ledger
_LOOP_ENDS_WITHIN_S = 5.0  # a call to the ledger ends within its own limit before that
_DRAINED_GRACE_S = 5.0  # for what ends by itself: a node leaves when its runs are done
_FAILING_GRACE_S = 5.0  # of a node that lost a loop: there may be no loop to finish runs or to renew the session


class Node:
    """One participating process. Made by the application; start it once."""

    def __init__(
        self, state: NodeState, *, publish: Callable[[], None] = lambda: None, loops: tuple[MakeStep, ...] = LOOPS
    ) -> None:
        """Make the node. `publish` records what the program declares; it is called when the node has joined."""
        self._state = state
        self._runtime = state.runtime
        self._publish = publish
        self._is_started = False
        self._is_failing = False
        self._is_leaving = False
        self._stopping = state.runtime.lock()
        self._stopped = state.stopped
        self._troubles = Troubles(state.runtime, node=lambda: self.node_id or "-", emit=state.emit)
        self._steps = steps_of(state, loops)
        self._loops = [self._loop(step) for step in self._steps]
        for loop in self._loops:
            state.add_loop(loop.name, loop.wake)

    @property
    def node_id(self) -> str | None:
        """The current identity, while this node may act."""
        return self._state.node_id

    @property
    def trusted_until(self) -> float:
        """Until when this node may act, on the monotonic clock."""
        member = self._state.member
        return member.lease.trusted_until if member else float("-inf")

    @property
    def was_drained(self) -> bool:
        """Whether it has left, or leaves, because a person has asked it to drain, and it has nothing left to do."""
        return self._state.is_done

    @property
    def is_running(self) -> bool:
        """Whether the node was started and not yet stopped."""
        return self._is_started and not self._stopped.is_set()

    # -- beginning and end -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join and start the loops. Raises `LedgerUnavailable` or a `ConfigurationError` if that is not possible."""
        self._is_started = True
        first, *others = self._steps
        first.begin()  # joins; if that fails, there is nothing to stop
        try:
            for step in others:
                step.begin()
            self._publish()  # after joining: older deploys check which nodes are alive, and must not overwrite this
            self._begin()
        except BaseException:
            self.stop(0.0)
            raise
        self._state.ledger.pool.drop_idle()  # connections that only the start needed

    def stop(self, grace_s: float) -> None:
        """Claim no more runs, give the current ones `grace_s` to end, write their outcomes to the ledger, and leave."""
        if not self._is_started:
            return
        with self._stopping:
            if not self._stopped.is_set():
                self._shut_down(grace_s)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the node was stopped. Return False if that did not happen in time."""
        return self._stopped.wait(timeout_s)

    def wake(self) -> None:
        """Query the ledger now, because a run was requested in this process."""
        self._state.hint()

    def forget(self) -> None:
        """Forget the node in a forked child: the parent is the node, and its loops do not exist here."""
        self._is_started = False
        self._state.joined = None

    # -- starting and stopping in order ------------------------------------------------------------------------------

    def _begin(self) -> None:
        state = self._state
        wake = next((loop.wake for loop in self._loops if loop.name == EXCHANGE), lambda: None)
        for runner in state.runners:
            runner.start(wake)
        if state.settings.leader:
            state.election = state.locks.election(LEADER_LEASE, ttl=state.ttl_s)
        for loop in self._loops:
            loop.start()

    def _shut_down(self, grace_s: float) -> None:
        for step in self._steps:
            step.drain()
        give_up_at = self._runtime.monotonic() + grace_s
        self._end_runs(grace_s)
        self._flush(give_up_at + _LOOP_ENDS_WITHIN_S)
        self._stopped.set()
        self._end_loops()
        if self._state.election is not None:
            self._state.election.stop()
        if (closing := self._state.in_background("leaving", self._close)) is not None:
            closing.join(
                _LOOP_ENDS_WITHIN_S
            )  # if the ledger does not answer, the session expires and other nodes notice

    def _end_runs(self, grace_s: float) -> None:
        closings = [partial(runner.close, grace_s) for runner in self._state.runners]
        tasks = [task for closing in closings if (task := self._state.in_background("closing", closing)) is not None]
        for task in tasks:
            task.join(grace_s + _LOOP_ENDS_WITHIN_S)

    def _flush(self, give_up_at: float) -> None:
        """Wait until all outcomes are in the ledger. If it does not answer, a reaper of another node ends the runs."""
        while self._runtime.monotonic() < give_up_at and (busy := self._busy_loops()):
            for loop in busy:
                loop.wake()
            self._runtime.sleep(0.01)

    def _busy_loops(self) -> list[Loop]:
        pairs = zip(self._steps, self._loops, strict=True)
        return [loop for step, loop in pairs if not step.is_empty and loop.died_of is None]

    def _end_loops(self) -> None:
        """End all loops at once. The exchange may have been in the middle of a claim, which it then hands back."""
        for loop in self._loops:
            loop.stop(0.0)
        for step in self._steps:
            step.interrupt()
        give_up_at = self._runtime.monotonic() + _LOOP_ENDS_WITHIN_S
        for loop in self._loops:
            loop.stop(max(give_up_at - self._runtime.monotonic(), 0.0))
        for step, loop in zip(self._steps, self._loops, strict=True):
            if loop.stop(0.0):
                with suppress(FencepostError):
                    step.settle(self._runtime.monotonic())

    def _close(self) -> None:
        for step in self._steps:  # the membership first: other nodes take over at once, whatever fails after that
            with suppress(Exception):
                step.close()

    # -- around every step -------------------------------------------------------------------------------------------

    def _loop(self, step: LoopStep) -> Loop:
        def watched(now: float) -> float:
            self._leave_if_a_loop_died()
            try:
                wake_at = step.step(now)
            except LedgerHeld:
                self._state.wake(EXCHANGE)  # it checks the ledger and reports the hold
                return now + _WHILE_HELD_S
            self._note_success(step)
            self._leave_if_drained()
            return wake_at

        return Loop(step.name, watched, runtime=self._runtime, on_error=self._troubles.met)

    def _note_success(self, step: LoopStep) -> None:
        """Report the end of a problem, unless the step succeeded only because it made no call without an identity."""
        if not step.acts_only_as_member or self._state.member is not None:
            self._troubles.over(step.name)

    def _leave_if_drained(self) -> None:
        """Leave when a person has asked this node to drain, and its runs are done."""
        if self._state.is_done and not self._is_leaving:
            self._is_leaving = True
            self._state.in_background("drained", lambda: self.stop(_DRAINED_GRACE_S))

    def _leave_if_a_loop_died(self) -> None:
        """Leave if a loop has died: a node that claims and never finishes, or the reverse, is worse than no node."""
        dead = next((loop for loop in self._loops if loop.died_of is not None), None)
        if dead is None or self._is_failing:
            return
        self._is_failing = True
        state = self._state
        reason = (
            f"its {dead.name} loop died of {dead.died_of!r}; the node leaves, so that other nodes take over its runs. "
            "Start it again"
        )
        state.emit(Event(What.NODE_FAILED, node=self.node_id, holder=state.settings.name, reason=reason))
        state.in_background("failing", lambda: self.stop(_FAILING_GRACE_S))
