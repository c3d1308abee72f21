"""The sessions of this process. The server does not know them: there, each grant has its own expiry.

This has two consequences. *Closing* a session must name its grants, so they are recorded here. A *renewal* must reach
every grant, even one that was granted a moment ago and that the caller does not list yet. Otherwise the caller would
trust the renewed session for longer than that grant lasts on the server.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fencepost.core.grants import Session


@dataclass(slots=True)
class OpenSession:
    """One session of this process. The dictionaries map grant ids to lock names."""

    call_timeout_s: float
    alive_until: float
    may_hold: dict[str, str] = field(default_factory=dict)
    unlisted: dict[str, str] = field(default_factory=dict)

    def asking(self, grant_id: str, name: str) -> None:
        """Record an acquisition before it is sent."""
        self.may_hold[grant_id] = self.unlisted[grant_id] = name

    def refused(self, grant_id: str) -> None:
        """Record that it was not granted."""
        self.unlisted.pop(grant_id, None)
        self.may_hold.pop(grant_id, None)

    def unanswered(self, grant_id: str) -> None:
        """Record that the outcome is unknown: the grant is not extended, but freed when the session is closed."""
        self.unlisted.pop(grant_id, None)

    def to_renew(self, listed: dict[str, str]) -> dict[str, str]:
        """Return the `listed` grants and those that the caller does not list yet."""
        for grant_id in listed:
            self.unlisted.pop(grant_id, None)
        return listed | self.unlisted.copy()


class OpenSessions:
    """All sessions of this process at one store, by id."""

    def __init__(self) -> None:
        self._sessions: dict[str, OpenSession] = {}

    def add(self, session: Session, *, call_timeout_s: float, now: float) -> None:
        """Remember a new session, and forget those that died long ago."""
        for old_id, old in self._sessions.copy().items():
            if now > old.alive_until + session.ttl_s:
                self._sessions.pop(old_id, None)
        self._sessions[session.id] = OpenSession(call_timeout_s, now + session.ttl_s)

    def get(self, session: Session) -> OpenSession | None:
        """Return the session, or None if it is closed or belongs to another process."""
        return self._sessions.get(session.id)

    def remove(self, session: Session) -> OpenSession | None:
        """Forget a session and return it."""
        return self._sessions.pop(session.id, None)
