"""The contract of a lease store: what every backend promises.

**Promises of every store**

- *Exclusion.* Of all sessions that are alive by the store's own clock, at most one holds a name.
- *Sessions.* A session not renewed for its ttl is dead. Death is decided once, by compare-and-set on the
  session itself, and only then are its names free; a dead session is never renewed. (Redis has no sessions: there,
  the same is true for each grant. An advisory lock ends with its connection, if that breaks before the ttl is over.)
- *Tokens.* `core.grants.next_token`: strictly increasing per name, changed only together with the holder, and kept in a
  record that outlives the hold.
- *Grant ids.* `acquire` repeated with the same `grant_id` returns the same grant; `release` of a grant that
  is not the current one changes nothing and returns False.
- *Bounded calls.* Every call ends within the session's or the store's call timeout. If the store does not reply by
  then, the call raises `StoreUnavailable`, which means *unknown*. Several threads may call at once.
- *Clocks.* Expiry is judged by the store's clock. If the store has no readable clock, a contender uses its own
  monotonic clock, and must have seen the holder's session unchanged for a full ttl. Wall clocks of two machines are
  never compared. The session of a node is ended only by a process that has seen it unchanged for a full ttl, whatever
  the store's clock says (`WatchesSessions`). Sessions of plain locks on SQL stores expire by the store's clock alone.

**Not promised**: that two processes never *believe* that they hold the same name. See `Capabilities.grade` and the
docstring of each store for the faults that it does not survive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, PastGrant, Renewed, Session, SessionSight
from fencepost.core.tick import Tick


class Grade(StrEnum):
    """Which failures of servers a store's promises survive."""

    CONSENSUS = "consensus"  # an acknowledged grant survives the loss of any minority of servers
    DURABLE = "durable"  # survives a restart of the server; an asynchronous replica may lose the last moments
    BEST_EFFORT = "best effort"  # may forget grants when it restarts or fails over; tokens still increase
    PROCESS = "process"  # one process only


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can and cannot do, for callers, for the docs and for the contract suite."""

    grade: Grade
    watch: bool
    durable_token: bool = True
    server_clock: bool = True
    keeps_history: bool = False
    renewal_sees_grants: bool = True
    renewal_round_trips: str = "one"
    smallest_ttl_s: float = 0.2
    longest_watch_s: float = 5.0  # how long to rely on a watch: one that broke silently delays a waiter by this
    scope: str = "network"  # or "machine", "process"
    loses: str = ""


class LeaseStore(Protocol):
    """A backend that keeps leases."""

    @property
    def capabilities(self) -> Capabilities: ...

    def start(self) -> tuple[str, ...]:
        """Connect, and create what the store needs. Refuse a server on which locks would be unsafe.

        Returns warnings for the operator, one sentence each. Raises `StoreRefused`, `UnsafeStore` or
        `StoreUnavailable`.
        """
        ...

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        """Open a session that lives for `ttl_s` after each renewal. Renewals are limited to `call_timeout_s`."""
        ...

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Extend the session and return which of `grants` it no longer holds (see `renewal_sees_grants`)."""
        ...

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Take `name` if it is free, in one atomic step with the token and the tick.

        Returns `Lost` if the session is dead or unknown to the store: a grant must never exist without a session.
        """
        ...

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Release the grant if it is the current one; otherwise change nothing and return False.

        `done` marks the grant's tick as done. `keep_for_s` keeps the name unavailable to everyone for that long, even
        if this process ends.
        """
        ...

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Return the ids of those `grants` that are no longer current at the store."""
        ...

    def close(self, session: Session) -> None:
        """End the session; the names that it still holds are free at once."""
        ...

    def read(self, name: str) -> LeaseRecord | None:
        """Return the record of `name`, or None if it was never held."""
        ...

    def records(self) -> Iterator[LeaseRecord]:
        """Return the records of all names, ordered by name."""
        ...

    def revoke(self, record: LeaseRecord) -> bool:
        """Take the name away from the holder in `record`, if its grant is still the current one. For operators."""
        ...

    def wait_change(self, held: Held, timeout_s: float) -> None:
        """Return when `held` may no longer be true, or after `timeout_s`. Only a hint: the caller has to ask again.

        A change between the refusal and this call is not missed. A store without a watch sleeps for a short time.
        """
        ...

    def shutdown(self) -> None:
        """Close all connections. Sessions that were not closed expire by themselves."""
        ...

    def forget_connections(self) -> None:
        """Drop every connection inherited through fork without closing it. Called in the child."""
        ...


@dataclass(frozen=True, slots=True)
class Watched:
    """Which grants are no longer current, and in how many seconds to look again so that no death is noticed late."""

    missing: frozenset[str]
    again_in_s: float = float("inf")


@runtime_checkable
class WatchesSessions(Protocol):
    """A store whose clock can be stepped, so that its clock alone must not end a node's session."""

    def watch(self, grants: Collection[Grant]) -> Watched:
        """Record which sessions were renewed since the last call; return which of `grants` are no longer current.

        A grant whose session has expired by the store's clock counts as missing only if this process has seen no
        renewal for the session's whole ttl, by its own monotonic clock. So this must be called regularly.
        """
        ...


@runtime_checkable
class ResetsTokens(Protocol):
    """A store that can reset a token that a wrong clock has put more than a day ahead."""

    def reset(self, name: str, token: int, *, reason: str) -> int | None:
        """Set the token of a free name from `token` to the store's time, and change nothing else. For operators.

        Returns the new token. Returns None and changes nothing if the name is held, has another token, or if the token
        is not more than `core.fencing.AHEAD_US` ahead of the store's clock.
        """
        ...


@runtime_checkable
class ShowsLeases(Protocol):
    """A store that can show its names page by page, and how sessions look. Reading changes and locks nothing."""

    def page(self, *, after: str, limit: int, is_held: bool) -> list[LeaseRecord]:
        """Return up to `limit` records, in the store's own order of names, that come after the name `after`.

        With `is_held`, only names that a session has, which may have expired. The sessions of nodes are left out.
        """
        ...

    def sessions(self, grants: Collection[Grant]) -> dict[str, SessionSight]:
        """Return how the sessions look that have these grants, by grant id; those that no session has are left out."""
        ...


@runtime_checkable
class KeepsHistory(Protocol):
    """A store that keeps a history of ended grants."""

    def history(self, name: str | None, *, limit: int) -> list[PastGrant]:
        """Return the latest ended grants, newest first. If `name` is None, those of all names."""
        ...


class LedgerMark(NamedTuple):
    """A ledger's identity and progress: how often an operator accepted it, and its last heartbeat."""

    ledger_id: str | None
    era: int
    beat_us: int


@runtime_checkable
class KnowsItsLedger(Protocol):
    """A store separate from the ledger's database. Two such stores for one ledger would allow two holders."""

    def noted(self, ledger: LedgerMark) -> tuple[str, LedgerMark]:
        """Record the ledger's progress; return the store's own identity and the previous record."""
        ...
