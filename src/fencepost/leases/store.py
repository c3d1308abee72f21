"""The contract of a lease store: what every backend promises, in seven verbs and a few for operators.

**Promises of every store**

- *Exclusion.* Of all sessions that are alive by the store's own clock, at most one holds a name.
- *Sessions.* A session not renewed for its ttl is dead. Death is decided once, by compare-and-set on the
  session itself, and only then are its names free; a dead session is never renewed. (Redis keeps no sessions: there
  the same holds of each grant. An advisory lock ends with its connection, if that breaks before the ttl is over.)
- *Tokens.* `core.grants.next_token`: strictly rising per name, changed only together with the holder, kept in a
  record that outlives the hold.
- *Grant ids.* `acquire` repeated with the same `grant_id` returns the same grant; `release` of a grant that
  is not the current one changes nothing and returns False.
- *Bounded calls.* Every call ends within the session's or the store's call timeout, if need be with
  `StoreUnavailable`, which means *unknown*. Calls are made from several threads at once.
- *Clocks.* Expiry is judged by the store's clock or, where it shows none, by the contender's own
  monotonic clock after seeing the holder's session unchanged for a full ttl. Wall clocks of two machines
  are never compared. The session of a node is ended only by who has seen it unchanged for a full ttl, whatever the
  store's clock says (`WatchesSessions`); that of plain locks, on SQL stores, by the store's clock alone.

**Not promised**: that two processes never *believe* they hold a name. See `Capabilities.grade` and each
store's docstring for the faults it does not survive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, PastGrant, Renewed, Session
from fencepost.core.tick import Tick


class Grade(StrEnum):
    """How much a store's promise is worth when machines fail."""

    CONSENSUS = "consensus"  # an acknowledged grant survives the loss of any minority of servers
    DURABLE = "durable"  # survives a restart of the server; an asynchronous replica may lose the last moments
    BEST_EFFORT = "best effort"  # may forget grants when it restarts or fails over; tokens still rise
    PROCESS = "process"  # one process only


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can and cannot do, for callers, for the docs and for the contract suite."""

    grade: Grade
    durable_token: bool
    server_clock: bool
    watch: bool
    keeps_history: bool = False
    renewal_sees_grants: bool = True
    renewal_round_trips: str = "one"
    smallest_ttl_s: float = 0.2
    longest_watch_s: float = 5.0  # for how long to rely on a watch: one that broke silently costs no more than this
    scope: str = "network"  # or "machine", "process"
    loses: str = ""


class LeaseStore(Protocol):
    """A place where leases are kept."""

    @property
    def capabilities(self) -> Capabilities: ...

    def start(self) -> tuple[str, ...]:
        """Connect, prepare what the store needs, and refuse where it would be unsafe.

        Returns sentences an operator should read, one per reservation. Raises `StoreRefused`,
        `UnsafeStore` or `StoreUnavailable`.
        """
        ...

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        """Open a session that lives for `ttl_s` after each renewal. Renewal calls obey `call_timeout_s`."""
        ...

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Prolong the session and say which of `grants` no longer hang on it (see `renewal_sees_grants`)."""
        ...

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Take `name` if it is free, in one atomic step with the token and the tick.

        `Lost` when the store sees that the session itself is dead or unknown: a grant must never hang on nothing.
        """
        ...

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Let go, if the grant is still the current one; False if it is not, and then nothing changed.

        `done` marks the grant's tick as done. `keep_for_s` keeps the name closed to everybody for that long,
        also if this process ends.
        """
        ...

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Ask the store which of `grants` are not current any more (by `grant_id`)."""
        ...

    def close(self, session: Session) -> None:
        """End the session; whatever still hangs on it is free at once."""
        ...

    def read(self, name: str) -> LeaseRecord | None:
        """Return what is known of `name`, or None if it was never held."""
        ...

    def records(self) -> Iterator[LeaseRecord]:
        """Return what is known of every name, in the order of names."""
        ...

    def revoke(self, record: LeaseRecord) -> bool:
        """Take the name away from the holder seen in `record`, if it is still that grant. For operators."""
        ...

    def wait_change(self, held: Held, timeout_s: float) -> None:
        """Return when `held` may no longer be true, or after `timeout_s`. A hint, never the truth.

        A change between the refusal and this call is not slept through. Without a watch, a short sleep.
        """
        ...

    def shutdown(self) -> None:
        """Close all connections. Sessions that were not closed run out by themselves."""
        ...

    def forget_connections(self) -> None:
        """Drop, without closing, every connection inherited through fork; called in the child."""
        ...


@dataclass(frozen=True, slots=True)
class Watched:
    """Which grants are not current any more, and when to look again so that no death is seen late, in seconds."""

    missing: frozenset[str]
    again_in_s: float = float("inf")


@runtime_checkable
class WatchesSessions(Protocol):
    """A store whose clock can be stepped, so that its word alone ends no node."""

    def watch(self, grants: Collection[Grant]) -> Watched:
        """Note which sessions were renewed since the last call; say which of `grants` are not current any more.

        One whose session has run out by the store's clock is missing only when it was seen without a renewal for the
        session's whole ttl, by this process's own monotonic clock. So it has to be called all the while.
        """
        ...


@runtime_checkable
class ResetsTokens(Protocol):
    """A store that can bring a token back to the present which a wrong clock has put more than a day ahead."""

    def reset(self, name: str, token: int, *, reason: str) -> int | None:
        """Set the token of a free name, which is `token`, to the store's time, and keep all else; for operators.

        Returns the new token. None if the name is held or its token is another, or is not more than
        `core.fencing.AHEAD_US` ahead of the store's clock; then nothing was changed.
        """
        ...


@runtime_checkable
class KeepsHistory(Protocol):
    """A store that remembers past grants."""

    def history(self, name: str | None, *, limit: int) -> list[PastGrant]:
        """Return the latest ended grants, newest first; of all names if `name` is None."""
        ...


class LedgerMark(NamedTuple):
    """A ledger, and how far it had come: its identity, how often a person accepted it, its last sign of life."""

    ledger_id: str | None
    era: int
    beat_us: int


@runtime_checkable
class KnowsItsLedger(Protocol):
    """A store apart from the ledger's database: two of them for one ledger would let two holders in."""

    def noted(self, ledger: LedgerMark) -> tuple[str, LedgerMark]:
        """Note how far the ledger had come; return the store's own identity, and what was noted before."""
        ...
