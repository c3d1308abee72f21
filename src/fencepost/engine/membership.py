"""The membership of this process among the nodes: its identity, its session, and until when it may act.

::

    OUTSIDE ──join──▶ MEMBER ──session lost──▶ (runners stop everything) ──▶ OUTSIDE, to join under a new identity
                        │
                        └──leave──▶ OUTSIDE, for good

The session is a lease named after the node, stored where the ledger is. A node that can take that name has thereby
declared this node dead: an expired session is never renewed, so the process takes a new identity. The lease package
renews the session on its own tasks, and ends the trust on time even if the ledger hangs. This step only passes the
result on to the runners.

An identity that is recorded in the ledger as ended is *disowned*: it may no longer act, whatever its session says.
"""

from __future__ import annotations

from contextlib import suppress

from fencepost.core.events import Event, What
from fencepost.core.names import NODE_LEASE
from fencepost.core.runs import Claim
from fencepost.engine.loop_step import LoopStep
from fencepost.engine.lost_identities import run_event
from fencepost.engine.node_state import EXCHANGE, MEMBERSHIP, Member, NodeState
from fencepost.errors import FencepostError, SchemaMismatch
from fencepost.leases.lease import Lease
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.declared import see
from fencepost.ledger.draining import take_over_drain
from fencepost.ledger.migrations import refuse_unreadable
from fencepost.ledger.nodes import NewNode, drain, join, leave
from fencepost.ledger.parking import unpark_for_older
from fencepost.ledger.sequences import advance_sequences

_LONG_S = 3600.0  # a node that leaves has nothing more to do here
_IN_DOUBT = "the ledger does not answer; the effects of the run are fenced, so it continues until its next transaction"


class Membership(LoopStep):
    """Joins, passes the trust on to the runners, and joins again when the session was lost."""

    name = MEMBERSHIP

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._is_leaving = False
        self._former: str | None = None
        node.locks.observe(self._observe)

    def begin(self) -> None:
        """Join."""
        self.join()

    def step(self, now: float) -> float:
        """Give up a lost identity, join if there is none, and pass the trust on to the runners."""
        node = self._node
        if self._is_leaving:
            return now + _LONG_S
        if node.joined is not None and (node.joined.lease.lost or node.is_disowned(node.joined)):
            self._give_up(node.joined)
        if node.joined is None:
            self.join()
        return now + self._extend_trust()

    def drain(self) -> None:
        """Record that this node is stopping, without waiting for the ledger."""
        self._node.in_background("draining", self._note_draining)

    def close(self) -> None:
        """Leave, and release the session."""
        member = self.leave()
        if member is None:
            return
        node = self._node
        with suppress(FencepostError), node.connection() as connection:
            leave(
                node.ledger, member.node_id, connection=connection
            )  # first: a node whose session is free counts as dead
            unpark_for_older(
                connection, node=member.node_id
            )  # if several nodes leave at once, the last one finds no other
        member.lease.release()
        node.emit(Event(What.NODE_LEFT, node=member.node_id, holder=node.settings.name))

    def join(self) -> Member:
        """Become a node. Raises what the store raises if that fails."""
        node_id = self._node.runtime.new_id()
        lease = self._node.locks.lock(NODE_LEASE + node_id, ttl=self._node.ttl_s).acquire()
        try:
            self._enrol(node_id, lease)
        except BaseException:
            lease.release()
            raise
        lease.on_lost(lambda _: self._node.wake(self.name))
        self._node.joined = member = Member(node_id, lease)
        return member

    def leave(self) -> Member | None:
        """Give up the identity for good. The caller has stopped all runs, and releases the session returned."""
        self._is_leaving = True
        member, self._node.joined = self._node.joined, None
        return member

    def _enrol(self, node_id: str, lease: Lease) -> None:
        """Write this node's row in the ledger."""
        node, settings = self._node, self._node.settings
        new = NewNode(
            id=node_id,
            name=settings.name,
            grant_id=lease.grant_id,
            token=lease.token,
            generation=settings.generation,
            version=settings.version,
            slots=settings.slots,
            queues=tuple(settings.queues),
            jobs=node.served_jobs,
            fingerprint=None if node.declared is None else node.declared.fingerprint,
        )
        with node.connection() as connection:
            node.same.check(connection)
            self._advance_sequences(connection)
            if new.fingerprint is not None:
                see(node.ledger, new.fingerprint, connection=connection)
            join(node.ledger, new, connection=connection)
            if self._former is not None:
                take_over_drain(node.ledger, node_id, former=self._former, connection=connection)
            try:
                refuse_unreadable(node.ledger, connection)
            except SchemaMismatch:
                leave(node.ledger, node_id, connection=connection)
                raise
        node.emit(Event(What.NODE_JOINED, node=node_id, holder=settings.name))

    def _advance_sequences(self, connection: LedgerConnection) -> None:
        for behind in advance_sequences(self._node.ledger, connection=connection):
            reason = f"{behind}; it was advanced"
            self._node.emit(Event(What.LEDGER_TROUBLE, node=self._node.settings.name, reason=reason))

    def _observe(self, event: Event) -> None:
        """Pass the trust on at once: a late renewal must not reach the runs too late."""
        if event.what is What.RENEWED:
            self._node.wake(self.name)

    def _extend_trust(self) -> float:
        member = self._node.joined
        if member is None or self._node.is_disowned(member):
            return 0.0
        for runner in self._node.runners:
            runner.trust(member.lease.trusted_until)
        if self._node.lost_identities:
            self._node.wake(EXCHANGE)
        return member.lease.timings.renew_every_s / 4

    def _give_up(self, member: Member) -> None:
        self._node.joined, self._former = None, member.node_id
        self._stop_runs(member, member.lease.lost_reason or self._node.reason_to_disown or "unknown")
        member.lease.release()  # the lease of a disowned identity may still be held

    def _stop_runs(self, member: Member, reason: str) -> None:
        """Stop all runs, or suspend them where that is safe. The exchange settles them in the ledger."""
        node = self._node
        suspended: list[Claim] = []
        for runner in node.runners:
            if member.lease.ran_out:
                suspended += runner.suspend()
            else:
                runner.lose()
        node.lost_identities.add(member.node_id, suspended, node.runtime.monotonic())
        node.emit(Event(What.NODE_LOST, node=member.node_id, holder=node.settings.name, reason=reason))
        for claim in suspended:
            node.emit(run_event(What.RUN_SUSPENDED, claim, member.node_id, _IN_DOUBT))

    def _note_draining(self) -> None:
        node = self._node
        if (node_id := node.node_id) is not None:
            with suppress(FencepostError), node.connection() as connection:
                drain(node.ledger, node_id, connection=connection)
