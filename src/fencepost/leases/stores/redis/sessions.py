"""What this process remembers of its sessions: the server keeps none, each grant there has its own expiry.

Two things follow. *Closing* a session has to name its grants, so they are noted here. And a *renewal* has to
reach every grant, also one that was given a moment ago and that the caller does not list yet: otherwise the
caller would trust the session, freshly renewed, longer than the server honours that grant.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fencepost.core.grants import Session


@dataclass(slots=True)
class OpenSession:
    """One session of this process. The dictionaries go from grant id to lock name."""

    call_timeout_s: float
    alive_until: float
    may_hold: dict[str, str] = field(default_factory=dict)
    unlisted: dict[str, str] = field(default_factory=dict)

    def asking(self, grant_id: str, name: str) -> None:
        """Note an acquisition before it is sent."""
        self.may_hold[grant_id] = self.unlisted[grant_id] = name

    def refused(self, grant_id: str) -> None:
        """Note that it was not granted."""
        self.unlisted.pop(grant_id, None)
        self.may_hold.pop(grant_id, None)

    def unanswered(self, grant_id: str) -> None:
        """Note that nobody knows: it is not prolonged, but freed when the session is closed."""
        self.unlisted.pop(grant_id, None)

    def to_renew(self, listed: dict[str, str]) -> dict[str, str]:
        """Return the `listed` grants and those that will be on the next list."""
        for grant_id in listed:
            self.unlisted.pop(grant_id, None)
        return listed | self.unlisted.copy()


class OpenSessions:
    """All sessions of this process at one store, by id."""

    def __init__(self) -> None:
        self._sessions: dict[str, OpenSession] = {}

    def add(self, session: Session, *, call_timeout_s: float, now: float) -> None:
        """Remember a new session, and forget those that have been dead for long."""
        for old_id, old in self._sessions.copy().items():
            if now > old.alive_until + session.ttl_s:
                self._sessions.pop(old_id, None)
        self._sessions[session.id] = OpenSession(call_timeout_s, now + session.ttl_s)

    def get(self, session: Session) -> OpenSession | None:
        """Return what is remembered, or None if the session is closed or not of this process."""
        return self._sessions.get(session.id)

    def remove(self, session: Session) -> OpenSession | None:
        """Forget a session and return what was remembered."""
        return self._sessions.pop(session.id, None)
