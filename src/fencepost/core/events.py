"""One vocabulary for all that happens to leases; logs, metrics and history are written from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    """What happened."""

    ACQUIRED = "acquired"
    REFUSED = "refused"
    ALREADY_DONE = "already done"
    SKIPPED = "skipped"
    RENEWED = "renewed"
    RENEWAL_UNANSWERED = "renewal unanswered"
    LOST = "lost"
    RELEASED = "released"
    RELEASE_UNANSWERED = "release unanswered"
    REVOKED = "revoked"
    ELECTED = "elected"
    RESIGNED = "resigned"
    LEADER_CHANGED = "leader changed"
    STORE_WARNING = "store warning"
    OBSERVER_FAILED = "observer failed"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: to which lock, by or because of whom, under which token, and why."""

    what: What
    lock: str | None = None
    holder: str | None = None
    token: int | None = None
    grant_id: str | None = None
    tick_us: int | None = None
    reason: str | None = None
    previous_holder: str | None = None
    previous_token: int | None = None
    held_s: float | None = None


Observer = Callable[[Event], None]
