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

from collections.abc import Callable

from fencepost.core.duration import Duration
from fencepost.core.events import Event, What
from fencepost.core.grants import Grant, Session
from fencepost.core.names import NODE_LEASE
from fencepost.engine.giving_up import LostNodeRuns
from fencepost.engine.ledger_clock import LedgerClock
from fencepost.engine.membership import Membership
from fencepost.engine.same_ledger import SameLedger
from fencepost.leases.locks import Locks
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NodeRow, living_nodes
from fencepost.ledger.promoting import promote_stranded

_MANY_STEPS = 20
_SOON_S = 0.05


class Reaper:
    """The step that looks after the dead."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        burial: LostNodeRuns,
        locks: Locks,
        membership: Membership,
        clock: LedgerClock,
        ttl: Duration,
        ttl_s: float,
        may_reap: Callable[[], bool],
        on_reaped: Callable[[], None],
        emit: Callable[[Event], None],
        same: SameLedger,
    ) -> None:
        self._ledger = ledger
        self._desk = ledger.desk("reaper")
        self._same = same
        same.watch(self._desk)
        self._burial = burial
        self._locks = locks
        self._membership = membership
        self._clock = clock
        self._ttl = ttl
        self._ttl_s = ttl_s
        self._every_s = min(max(ttl_s / 10, 0.2), 3.0)
        self._may_reap = may_reap
        self._on_reaped = on_reaped
        self._emit = emit
        self._others: list[NodeRow] = []
        self._must_list = True
        self._mark: object = None
        self._steps = 0

    def nodes_changed(self, mark: object) -> None:
        """Note what a look says of the nodes: another mark means that some came or went."""
        if mark != self._mark:
            self._mark = mark
            self._must_list = True

    def step(self, now: float) -> float:
        """Declare dead who is dead, and give up what they had."""
        member = self._membership.member
        self._steps += 1
        if member is None or not self._may_reap() or not self._clock.is_believed or self._same.is_held:
            return now + self._every_s
        if self._must_list or self._steps % _MANY_STEPS == 0:
            self._list(member.node_id)
        again_in_s = self._watch_the_others() if self._others else self._every_s
        self._desk.rest()
        return now + min(self._every_s, max(again_in_s, _SOON_S))

    def close(self) -> None:
        """Let the connection go."""
        self._desk.rest()

    def _list(self, me: str) -> None:
        self._must_list = False  # first: what changes from here on is another reason to list
        try:
            self._see_to(me)
        except BaseException:
            self._must_list = True
            raise

    def _see_to(self, me: str) -> None:
        self._others = [node for node in living_nodes(self._ledger, desk=self._desk) if node.id != me]
        ended = [node_id for node_id in self._burial.unfinished(self._desk) if node_id != me]
        count = sum(self._burial.give_up_runs(self._desk, node_id) for node_id in ended)
        if promote_stranded(self._desk) + count:
            self._on_reaped()

    def _watch_the_others(self) -> float:
        """Note whose session was renewed, and bury whose was not; return when to look again."""
        watched = self._locks.watch([_grant(node) for node in self._others])
        if self._clock.contact_s() >= self._ttl_s:
            grants = {node.grant_id: node for node in self._others}
            for grant_id in watched.missing:
                self._bury(grants[grant_id])
        return watched.again_in_s

    def _bury(self, node: NodeRow) -> None:
        """Take the dead node's lease, which is what makes it dead, and give up its runs."""
        with_its_lease = self._locks.try_lock(NODE_LEASE + node.id, ttl=self._ttl)
        if with_its_lease is None:
            return  # it lives, or another node is at it
        try:
            if self._burial.bury(self._desk, node.id, "its session expired"):
                self._emit(Event(What.NODE_DIED, node=node.id, holder=node.name, reason="its session expired"))
            self._others = [other for other in self._others if other.id != node.id]
            self._on_reaped()
        finally:
            with_its_lease.release()


def _grant(node: NodeRow) -> Grant:
    """Return the node's session as the lease store knows it; only name and grant id are compared."""
    return Grant(NODE_LEASE + node.id, Session("", node.name, 0.0), node.grant_id, node.token)
