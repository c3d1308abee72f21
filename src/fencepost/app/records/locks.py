"""Exclusive keys, released locks, and what a release does, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fencepost.app.records.record import LedgerRecord
from fencepost.core.duration import spelled
from fencepost.core.names import LEADER_LEASE

if TYPE_CHECKING:
    from fencepost.app.records.nodes import LockRecord


@dataclass(frozen=True, slots=True)
class WaitingRunRecord(LedgerRecord):
    """A run that waits for an exclusive key."""

    run_id: int
    job: str


@dataclass(frozen=True, slots=True)
class KeyRecord(LedgerRecord):
    """An exclusive key that a run has or that runs wait for, as far as the caller may see them.

    `held`: whether a run has it. If that is a run of another job, `job` says so, and the rest is None. If no run has
    it, a node queues the next one within a second or so. `waiting`: the runs that wait, the next one first;
    `more_waiting`: there are more of them.
    """

    key: str
    held: bool
    run_id: int | None
    job: str | None
    node: str | None
    node_name: str | None
    token: int | None
    since_at: datetime | None
    waiting: Sequence[WaitingRunRecord]
    more_waiting: bool


@dataclass(frozen=True, slots=True)
class ReleasedLockRecord(LedgerRecord):
    """What a forced release did. `released`: False if the lock was not held. `token` and `holder`: of that hold."""

    name: str
    store: str | None
    released: bool
    holder: str | None
    token: int


@dataclass(frozen=True, slots=True)
class ResetLockRecord(LedgerRecord):
    """The token of a lock, before and after it was brought back from ahead of the clock."""

    name: str
    store: str | None
    was: int
    token: int


def release_consequence(lock: LockRecord) -> str:
    """Say what a forced release of this lock does, and to whom."""
    if lock.kept:
        return "Its holder has released it. It stays closed until its time is over; there is nothing to take away."
    if not lock.held:
        return "Nobody holds it: there is nothing to take away."
    who = lock.holder or "its holder"
    notices = f"within {_time(lock.ttl_s / 3)}, if it is alive" if lock.ttl_s else "within about its ttl"
    said = [
        f"{who} loses it at once, and others can take it. {_renews(lock)}",
        f"It notices at its next renewal or check ({notices}), as LeaseLost. Until then it goes on working, and only a "
        f"fence stops its writes.",
        f"The next holder gets a token above {lock.token}. From its first write on, fences refuse {lock.token}.",
    ]
    if lock.name == LEADER_LEASE:
        said.append("The nodes elect another leader; that may be the same node.")
    return " ".join(said)


def _renews(lock: LockRecord) -> str:
    if lock.age_s is None or lock.ttl_s is None:
        return "Whether it still renews is not known: this store does not show it."
    if lock.age_s <= lock.ttl_s / 2:
        return f"It renewed {_time(lock.age_s)} ago (ttl {_time(lock.ttl_s)}), so it is alive."
    return f"It has not renewed for {_time(lock.age_s)}. Without a release it is free after {_time(lock.ttl_s)}."


def _time(duration_s: float) -> str:
    return spelled(round(duration_s, 1))
