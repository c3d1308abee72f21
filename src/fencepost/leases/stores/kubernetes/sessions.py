"""Sessions: one Lease each, renewed with one small patch for all its locks, and ended by its deletion.

**When a session is dead.** The API server has no clock for this, so a contender uses its own: it must see the session's
Lease with an unchanged resource version for a full ttl, counted from when it *first* saw that version. The holder's
trust began before the write of that version, so it has ended by then. The contender then ends the session with a DELETE
that names the uid and the version it saw. A renewal in between makes the DELETE fail, and the session lives. Only after
the DELETE the session's locks are free. A holder that could not renew for a full ttl by its own clock ends its session
itself.

**Not promised**: that a contender can distinguish a dead session from a live one when it sees it for the first time.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from fencepost.core.grants import Lost, Renewed, Session
from fencepost.core.runtime import Runtime
from fencepost.errors import StoreUnavailable
from fencepost.leases.stores.kubernetes.clock import ServerClock
from fencepost.leases.stores.kubernetes.objects import (
    Json,
    SessionObject,
    new_session,
    read_session,
    renewal,
    session_object_name,
)
from fencepost.leases.stores.kubernetes.requests import Leases

_SIGHTINGS_MAX = 2000  # bounds memory; a session that is not remembered is watched for another ttl
_KILLS_PER_SWEEP = 10  # bounds what one acquisition does for others


@dataclass(frozen=True, slots=True)
class Sighting:
    """A session as this process last saw it, and since when it has been unchanged."""

    session: SessionObject
    first_seen_at: float

    def alive_until(self) -> float:
        """Return when it may be ended, if it is still unchanged then."""
        return self.first_seen_at + self.session.ttl_s


class SessionSightings:
    """What this process has seen of sessions. Without input or output."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Sighting] = OrderedDict()

    def note(self, session: SessionObject, now: float) -> Sighting:
        """Record what was just read; the time starts again if the version has changed."""
        known = self._by_id.get(session.id)
        if known is not None and (known.session.uid, known.session.version) == (session.uid, session.version):
            return known
        if len(self._by_id) >= _SIGHTINGS_MAX:
            self._by_id.popitem(last=False)  # may cost a waiter another ttl, but never ends a live session
        self._by_id[session.id] = Sighting(session, now)
        return self._by_id[session.id]

    def forget(self, session_id: str) -> None:
        """Record that it is gone."""
        self._by_id.pop(session_id, None)


@dataclass(slots=True)
class _Own:
    """A session that this process opened."""

    uid: str | None
    call_timeout_s: float
    renewed_at: float
    renewals: int = 0


class Sessions:
    """The sessions of a store: its own, and those of others that it has seen."""

    def __init__(self, leases: Leases, heartbeat: Leases, runtime: Runtime, clock: ServerClock) -> None:
        self._leases = leases
        self._heartbeat = heartbeat
        self._runtime = runtime
        self._clock = clock
        self._sightings = SessionSightings()
        self._own: dict[str, _Own] = {}

    def open(self, session: Session, *, call_timeout_s: float, until: float) -> None:
        """Create the session's Lease."""
        self._sweep(until)
        sent_at = self._runtime.monotonic()
        body = new_session(self._leases.prefix, session, now_us=self._clock.earliest_us(sent_at))
        lease = self._leases.create(body, until=until)
        if lease is None:  # ours: the reply to a first attempt was lost, and no other process has this id
            lease = self._leases.get(self._object_name(session.id), until=until)
        self._own[session.id] = _Own(lease["metadata"]["uid"] if lease else None, call_timeout_s, sent_at)

    def renew(self, session: Session) -> Renewed | Lost:
        """Patch the session's Lease, if it is still the one that we created."""
        sent_at = self._runtime.monotonic()
        own = self._own.get(session.id) or self._adopt(session, sent_at)
        until = sent_at + own.call_timeout_s
        if self.has_lapsed(session):
            self._kill_own(session, own, until)
            return Lost("it was not renewed for a full ttl")
        own.renewals += 1
        patch = renewal(own.uid, renewals=own.renewals, now_us=self._clock.earliest_us(sent_at))
        lease = self._heartbeat.patch(self._object_name(session.id), patch, until=until)
        if lease is None or (alive := read_session(lease)) is None:
            self._own.pop(session.id, None)
            return Lost("its Lease was deleted: it expired and another process took over, or it was closed")
        own.uid, own.renewed_at = alive.uid, sent_at
        return Renewed()

    def close(self, session: Session, *, until: float) -> None:
        """Delete the session's Lease."""
        own = self._own.pop(session.id, None)
        self._leases.delete(self._object_name(session.id), uid=own.uid if own else None, until=until)
        self._sweep(until)

    def has_lapsed(self, session: Session) -> bool:
        """Whether one of our own sessions was not renewed for a full ttl, by our own clock."""
        own = self._own.get(session.id)
        return own is not None and self._runtime.monotonic() - own.renewed_at >= session.ttl_s

    def is_gone(self, session: Session, *, until: float) -> bool:
        """Whether one of our own sessions has ended. Asks the server only if our own clock does not exclude it."""
        if session.id in self._own and not self.has_lapsed(session):
            return False
        return self.has_lapsed(session) or self.see(session.id, until=until) is None

    def see(self, session_id: str, *, until: float) -> Sighting | None:
        """Read a session. None: it is dead."""
        return self.note(session_id, self._leases.get(self._object_name(session_id), until=until))

    def see_or_kill(self, session_id: str, *, until: float) -> Sighting | None:
        """Read a session, and end it if it has been unchanged for its ttl. None: it is dead."""
        sighting = self.see(session_id, until=until)
        if sighting is None or self._runtime.monotonic() < sighting.alive_until():
            return sighting
        return None if self._kill(sighting, until) else self.see(session_id, until=until)

    def note(self, session_id: str, lease: Json | None) -> Sighting | None:
        """Record a session's Lease as it was just read; None if there is none."""
        session = None if lease is None else read_session(lease)
        if session is None:
            self._sightings.forget(session_id)
            return None
        return self._sightings.note(session, self._runtime.monotonic())

    def note_all(self, leases: Iterable[Json]) -> dict[str, Sighting]:
        """Record a list of sessions; return the live ones by id."""
        seen = (read_session(lease) for lease in leases)
        now = self._runtime.monotonic()
        return {session.id: self._sightings.note(session, now) for session in seen if session is not None}

    def _kill(self, sighting: Sighting, until: float) -> bool:
        seen = sighting.session
        is_dead = self._leases.delete(self._object_name(seen.id), uid=seen.uid, version=seen.version, until=until)
        if is_dead:
            self._sightings.forget(seen.id)
        return is_dead

    def _kill_own(self, session: Session, own: _Own, until: float) -> None:
        """Delete early what contenders would delete anyway."""
        with contextlib.suppress(StoreUnavailable):
            self._heartbeat.delete(self._object_name(session.id), uid=own.uid, until=until)

    def _sweep(self, until: float) -> None:
        """Delete sessions that crashed processes left behind, by the rule of this module and a few at a time."""
        with contextlib.suppress(StoreUnavailable):
            seen = self.note_all(self._leases.page(kind="session", until=until))
            now = self._runtime.monotonic()
            dead = [sighting for sighting in seen.values() if sighting.alive_until() <= now]
            for sighting in dead[:_KILLS_PER_SWEEP]:
                self._kill(sighting, until)

    def _adopt(self, session: Session, now: float) -> _Own:
        """Renew a session that another store object opened: without its uid, relying on the server alone."""
        return self._own.setdefault(session.id, _Own(None, self._leases.call_timeout_s, now))

    def _object_name(self, session_id: str) -> str:
        return session_object_name(self._leases.prefix, session_id)
