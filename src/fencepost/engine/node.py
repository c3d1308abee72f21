"""A node: one participating process, its loops, and how they begin and end together.

::

    start ──▶ join ──▶ loops: membership · exchange · planner · reaper · pruner · pauses
                                   │ (· lateness, where jobs have an SLA · a listener for hints)
                                   │ session lost: stop what runs, join as somebody else
    stop ──▶ claim nothing more ──▶ what has not started goes back ──▶ the rest gets its grace ──▶ leave

What it is made of is in `engine.parts`. No node is special: a leader, if the application wants one, only saves the
others the planning.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from fencepost.core.events import Event, What
from fencepost.engine.parts import NodeParts, NodeSettings
from fencepost.errors import FencepostError
from fencepost.ledger.nodes import drain, leave
from fencepost.ledger.parking import unpark_for_older

__all__ = ["LEADER", "Node", "NodeSettings"]

LEADER = "fencepost/leader"
_LOOP_ENDS_WITHIN_S = 5.0
_CRIPPLED_GRACE_S = 5.0  # of a node without one of its loops: nobody may be there to end what runs, or to renew


class Node(NodeParts):
    """One participating process. Made by the application; start it once."""

    # -- beginning and end -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join and begin. Raises `LedgerUnavailable` or a `ConfigurationError` if that cannot be."""
        self._is_started = True
        self._membership.join()
        try:
            self._publish()  # after it has joined: older deploys, which look who lives, must not write over it
            self._begin()
        except BaseException:
            self.stop(0.0)
            raise
        self._ledger.pool.drop_idle()  # what was needed to begin is not needed to go on

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

    # -- in order -------------------------------------------------------------------------------

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
        self._beside("draining", self._drain)  # nobody waits for it: it is for those who look, and who plan
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
        if self._deploying is not None:
            self._deploying.close()

    def _drain(self) -> None:
        if (node_id := self.node_id) is not None:
            with suppress(FencepostError), self._own_desk() as desk:
                drain(self._ledger, node_id, desk=desk)

    def _end_runs(self, grace_s: float) -> None:
        closings = [partial(runner.close, grace_s) for runner in self._runners]
        tasks = [task for closing in closings if (task := self._beside("closing", closing)) is not None]
        for task in tasks:
            task.join(grace_s + _LOOP_ENDS_WITHIN_S)

    def _flush(self, give_up_at: float) -> None:
        """Wait until the ledger knows how everything ended; what it does not answer, the reaper will find."""
        while not self._exchange.is_empty and self._runtime.monotonic() < give_up_at:
            if self._exchange_loop.died_of is not None:
                return
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
            unpark_for_older(desk, node=member.node_id)  # of several that leave at once, the last one finds nobody
        member.lease.release()
        self._emit(Event(What.NODE_LEFT, node=member.node_id, holder=self._settings.name))

    def _listen(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._listener.wait(1.0):
                    self._hint()
            except Exception:  # noqa: BLE001 - a hint is a courtesy: polling finds it too
                self._stopped.wait(1.0)
        self._listener.wait(0.0)  # it is closed; whoever waits lets go of its connection

    def _before_a_step(self) -> None:
        """Leave, if a loop has died: one that claims and never ends, or the reverse, is worse than none."""
        dead = next((loop for loop in self._loops if loop.died_of is not None), None)
        if dead is None or self._is_crippled:
            return
        self._is_crippled = True
        reason = f"its {dead.name} loop died of {dead.died_of!r}; it leaves, so that others take over. Start it again"
        self._emit(Event(What.NODE_FAILED, node=self.node_id, holder=self._settings.name, reason=reason))
        self._beside("failing", lambda: self.stop(_CRIPPLED_GRACE_S))
