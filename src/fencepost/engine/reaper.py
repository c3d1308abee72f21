"""The reaper: what a dead node left behind is found, and rerun, failed or held by policy.

Death is decided in one place: the node's own lease. Whoever can take it, after it ran out by the store's clock, has
thereby declared the node dead, for a session that ended is never renewed. Only then is the death noted in the
ledger, and only then are the dead node's runs touched; if this process dies in between, the next one finds the
lease free or the note without its consequence, and goes on from there.

**Clocks.** The store's clock may be stepped. So the renewals of all others are watched all the while, and a lease is
taken only after its session was seen without one for a whole ttl by this process's own clock: no step of the server's
clock ends a living node. And a node that has not itself been in unbroken contact with the ledger for a whole ttl
declares nobody dead: after an outage the living renew first.

**Itself.** A node never gives up runs in its own name. If the ledger says that it is dead, it learns so by its next
look, and joins anew; until then it claims nothing.
"""

from __future__ import annotations

from fencepost.core.events import Event, What
from fencepost.core.grants import Grant, Session
from fencepost.core.names import NODE_LEASE
from fencepost.engine.loop_step import LedgerStep
from fencepost.engine.node_state import NodeState
from fencepost.ledger.nodes import NodeRow, living_nodes
from fencepost.ledger.promoting import promote_stranded

_MANY_STEPS = 20
_SOON_S = 0.05


class Reaper(LedgerStep):
    """The step that looks after the dead."""

    name = "reaper"
    acts_only_as_member = True

    def __init__(self, node: NodeState) -> None:
        super().__init__(node)
        self._same = node.same
        self._same.watch(self._connection)
        self._lost_runs = node.lost_runs
        self._locks = node.locks
        self._clock = node.clock
        self._ttl_s = node.ttl_s
        self._every_s = min(max(node.ttl_s / 10, 0.2), 3.0)
        self._others: list[NodeRow] = []
        self._must_list = True
        self._steps = 0
        node.on_nodes_changed(self._nodes_changed)

    def step(self, now: float) -> float:
        """Declare dead who is dead, and give up what they had."""
        member = self._node.member
        self._steps += 1
        if member is None or not self._may_reap():
            return now + self._every_s
        if self._must_list or self._steps % _MANY_STEPS == 0:
            self._list(member.node_id)
        again_in_s = self._watch_the_others() if self._others else self._every_s
        self._connection.rest()
        return now + min(self._every_s, max(again_in_s, _SOON_S))

    def _nodes_changed(self) -> None:
        self._must_list = True

    def _may_reap(self) -> bool:
        """Whether it is this node's turn; what was its own it adopts before it declares anybody dead."""
        return not self._node.lost_identities and self._clock.is_believed and not self._same.is_held

    def _list(self, me: str) -> None:
        self._must_list = False  # first: what changes from here on is another reason to list
        try:
            self._see_to(me)
        except BaseException:
            self._must_list = True
            raise

    def _see_to(self, me: str) -> None:
        self._others = [node for node in living_nodes(self._ledger, connection=self._connection) if node.id != me]
        ended = [node_id for node_id in self._lost_runs.unfinished(self._connection) if node_id != me]
        count = sum(self._lost_runs.give_up_runs(self._connection, node_id) for node_id in ended)
        if promote_stranded(self._connection) + count:
            self._node.hint()

    def _watch_the_others(self) -> float:
        """Note whose session was renewed, and declare dead whose was not; return when to look again."""
        watched = self._locks.watch([_grant(node) for node in self._others])
        if self._clock.contact_s() >= self._ttl_s:
            grants = {node.grant_id: node for node in self._others}
            for grant_id in watched.missing:
                self._declare_dead(grants[grant_id])
        return watched.again_in_s

    def _declare_dead(self, node: NodeRow) -> None:
        """Take the dead node's lease, which is what makes it dead, and give up its runs."""
        with_its_lease = self._locks.try_lock(NODE_LEASE + node.id, ttl=self._ttl_s)
        if with_its_lease is None:
            return  # it lives, or another node is at it
        try:
            if self._lost_runs.declare_dead(self._connection, node.id, "its session expired"):
                self._node.emit(Event(What.NODE_DIED, node=node.id, holder=node.name, reason="its session expired"))
            self._others = [other for other in self._others if other.id != node.id]
            self._node.hint()
        finally:
            with_its_lease.release()


def _grant(node: NodeRow) -> Grant:
    """Return the node's session as the lease store knows it; only name and grant id are compared."""
    return Grant(NODE_LEASE + node.id, Session("", node.name, 0.0), node.grant_id, node.token)
