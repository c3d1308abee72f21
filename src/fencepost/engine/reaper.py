"""The reaper: the loop that finds the runs of dead nodes, which are then rerun, failed or held by policy.

Death is decided in one place: the node's own lease. A node that can take it, after it expired by the store's clock, has
thereby declared its holder dead, because an expired session is never renewed. Only then is the death recorded in the
ledger, and only then are the dead node's runs changed. If this process dies in between, the next reaper finds the lease
free, or the recorded death with runs left, and continues from there.

**Clocks.** The store's clock may be stepped. So this loop watches the renewals of all other nodes all the time, and
takes a lease only after it has seen no renewal for a whole ttl on its own clock: no step of the server's clock ends a
living node. A node that has not itself been in unbroken contact with the ledger for a whole ttl declares no node dead:
after an outage, living nodes renew first.

**Its own runs.** A node never gives up runs under its own name. If the ledger records it as dead, it finds out by its
next look and joins again; until then it claims nothing.
"""

from __future__ import annotations

from fencepost.core.events import Event, What
from fencepost.core.names import NODE_LEASE
from fencepost.engine.loop_step import LedgerStep
from fencepost.engine.node_state import NodeState
from fencepost.ledger.nodes import NodeRow, living_nodes
from fencepost.ledger.promoting import promote_stranded

_MANY_STEPS = 20  # the list of nodes is read anew in case a hint was lost
_SOON_S = 0.05  # a session ends in a moment: do not spin until then


class Reaper(LedgerStep):
    """The step that declares nodes dead."""

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
        """Declare nodes dead whose session has expired, and give up their runs."""
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
        """Whether this node may reap now. It adopts its own suspended runs before it declares another node dead."""
        return not self._node.lost_identities and self._clock.is_believed and not self._same.is_held

    def _list(self, me: str) -> None:
        self._must_list = False  # first: a change from here on sets it again
        try:
            self._list_and_clean_up(me)
        except BaseException:
            self._must_list = True
            raise

    def _list_and_clean_up(self, me: str) -> None:
        self._others = [node for node in living_nodes(self._ledger, connection=self._connection) if node.id != me]
        ended = [node_id for node_id in self._lost_runs.unfinished(self._connection) if node_id != me]
        count = sum(self._lost_runs.give_up_runs(self._connection, node_id) for node_id in ended)
        if promote_stranded(self._connection) + count:
            self._node.hint()

    def _watch_the_others(self) -> float:
        """Check which sessions were renewed, and declare the other nodes dead. Return when to check again."""
        watched = self._locks.watch([node.grant for node in self._others])
        if self._clock.contact_s() >= self._ttl_s:
            grants = {node.grant_id: node for node in self._others}
            for grant_id in watched.missing:
                self._declare_dead(grants[grant_id])
        return watched.again_in_s

    def _declare_dead(self, node: NodeRow) -> None:
        """Take the dead node's lease, which decides that it is dead, and give up its runs."""
        with_its_lease = self._locks.try_lock(NODE_LEASE + node.id, ttl=self._ttl_s)
        if with_its_lease is None:
            return  # it is alive, or another node is declaring it dead
        try:
            if self._lost_runs.declare_dead(self._connection, node.id, "its session expired"):
                self._node.emit(Event(What.NODE_DIED, node=node.id, holder=node.name, reason="its session expired"))
            self._others = [other for other in self._others if other.id != node.id]
            self._node.hint()
        finally:
            with_its_lease.release()
