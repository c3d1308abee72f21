"""What a lease store is asked and what it answers, as values.

Outcomes are types, not booleans or exceptions: a caller has to look at which one it got. The one thing a
store raises at run time is `StoreUnavailable`, and it means *unknown*.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.core.tick import Tick


@dataclass(frozen=True, slots=True)
class Session:
    """A process's liveness at a store. Every grant hangs on one, and ends with it.

    `ttl_s` is what the store really granted, which may be more or less than was asked for (ZooKeeper has limits).
    Once a session has expired it is never renewed; the process opens another.
    """

    id: str
    holder: str
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Grant:
    """An exclusive hold on a name: what the holder got.

    `grant_id` are 128 random bits made by the caller for one acquisition. Asking again with the same one
    (because the reply was lost) returns the same grant; release and renewal compare it.
    `token` is the fencing number: larger than that of every earlier grant of the name.
    """

    name: str
    session: Session
    grant_id: str
    token: int
    tick: Tick | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else has it. `free_in_s`: when it is worth asking again at the latest, where the store knows.

    `is_kept`: nobody holds it any more; it is kept closed for as long as its last holder has asked for (`at_least`).
    """

    name: str
    holder: str | None
    token: int
    grant_id: str | None = None
    free_in_s: float | None = None
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """The tick is at or below the last one done under this name."""

    name: str
    tick: Tick
    last_tick_us: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """The session lives on, for one more ttl; `gone` are the grant ids that no longer hang on it."""

    gone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Lost:
    """The session has ended: expired, closed, or killed by somebody who took over. Nothing hangs on it any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What the store remembers of a name, also while nobody holds it."""

    name: str
    token: int
    holder: str | None = None
    grant_id: str | None = None
    session_id: str | None = None
    acquired_at_us: int | None = None
    free_in_s: float | None = None
    last_tick_us: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether a live session held it when the store answered."""
        return self.grant_id is not None


@dataclass(frozen=True, slots=True)
class PastGrant:
    """One row of history: who held `name` with which token, from when until when (µs, UTC), and why it ended."""

    name: str
    holder: str
    token: int
    acquired_at_us: int
    ended_at_us: int
    why: str


def next_token(*, previous: int, floor: int, store_time_us: int) -> int:
    """Return the token of the next grant: the one rule of every store.

    The clock makes it survive a store that forgot; `previous` makes it survive a clock that went back;
    `floor` makes it pass a fence that has seen more than the store remembers.
    """
    return max(previous + 1, floor, store_time_us)
