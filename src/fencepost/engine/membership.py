"""This process's place among the nodes: an identity, a session that is kept alive, and until when it may act.

::

    OUTSIDE ──join──▶ MEMBER ──session lost──▶ (runners stop everything) ──▶ OUTSIDE, to join as somebody else
                        │
                        └──leave──▶ OUTSIDE, for good

The session is a lease named after the node, kept where the ledger is. Whoever can take that name has thereby declared
this node dead: a dead session is never renewed, so the process takes a new identity. The lease package renews it on
tasks of its own and ends trust on time though the ledger hangs; this step only passes on what it says.

An identity whose end stands in the ledger is *disowned*: it may not act any more, whatever its session says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost.core.duration import Duration
from fencepost.core.names import NODE_LEASE
from fencepost.core.runtime import Runtime
from fencepost.leases.lease import Lease
from fencepost.leases.locks import Locks


@dataclass(frozen=True, slots=True)
class Member:
    """One identity of this process, from when it joined until it left or was lost."""

    node_id: str
    lease: Lease

    @property
    def is_trusted(self) -> bool:
        """Whether this node may act now."""
        return not self.lease.lost


class Membership:
    """Joins, passes trust on, and joins anew when the session was lost."""

    def __init__(
        self,
        *,
        locks: Locks,
        runtime: Runtime,
        ttl: Duration,
        enrol: Callable[[str, Lease], None],
        on_trust: Callable[[float], None],
        on_lost: Callable[[Member, str], None],
        wake: Callable[[], None],
    ) -> None:
        self._locks = locks
        self._runtime = runtime
        self._ttl = ttl
        self._enrol = enrol
        self._on_trust = on_trust
        self._on_lost = on_lost
        self._wake = wake
        self._member: Member | None = None
        self._is_leaving = False
        self._disowned: tuple[Member, str] | None = None

    @property
    def member(self) -> Member | None:
        """Who this process is, if it may act."""
        member = self._member
        return member if member is not None and member.is_trusted and not self._is_disowned(member) else None

    def disown(self, member: Member, reason: str) -> None:
        """Be this no longer: others act as if it were dead. The next step joins as somebody else."""
        self._disowned = (member, reason)
        self._wake()

    def step(self, now: float) -> float:
        """Join if outside; pass trust on; see to it that a lost identity is given up."""
        if self._is_leaving:
            return now + 3600.0
        if self._member is not None and (self._member.lease.lost or self._is_disowned(self._member)):
            self._give_up(self._member)
        if self._member is None:
            self.join()
        return now + self._pass_on()

    def join(self) -> Member:
        """Become a node. Raises what the store raises if that cannot be."""
        node_id = self._runtime.new_id()
        lease = self._locks.lock(NODE_LEASE + node_id, ttl=self._ttl).acquire()
        try:
            self._enrol(node_id, lease)
        except BaseException:
            lease.release()
            raise
        lease.on_lost(lambda _: self._wake())
        self._member = member = Member(node_id, lease)
        return member

    def leave(self) -> Member | None:
        """Be nobody from now on; the caller has seen to it that nothing runs, and releases the session returned."""
        self._is_leaving = True
        member, self._member = self._member, None
        return member

    def forget(self) -> None:
        """In a forked child: the parent is the node."""
        self._member = None

    def _pass_on(self) -> float:
        member = self._member
        if member is None or self._is_disowned(member):
            return 0.0
        self._on_trust(member.lease.trusted_until)
        return member.lease.timings.renew_every_s / 4

    def _give_up(self, member: Member) -> None:
        self._member = None
        self._on_lost(member, member.lease.lost_reason or self._reason_to_disown or "unknown")
        member.lease.release()  # one that was disowned may still be held

    def _is_disowned(self, member: Member) -> bool:
        return self._disowned is not None and self._disowned[0] is member

    @property
    def _reason_to_disown(self) -> str | None:
        return None if self._disowned is None else self._disowned[1]
