"""Waits until a held lock is free, with one watch on two objects: the lock and its holder's session.

A list returns both objects and the version from which the watch continues, so no change is missed. Every renewal
arrives as an event, so the time since the last renewal is exact. A watch that broke silently only costs precision: the
DELETE that follows compares the version.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime
from fencepost.leases.stores.kubernetes.objects import ID, Json, LockObject, lock_id, read_lock
from fencepost.leases.stores.kubernetes.requests import OK, Leases
from fencepost.leases.stores.kubernetes.sessions import Sessions, Sighting

_PAUSE_S = 0.5  # after a watch that was refused: the caller tries again when this is over
_WATCH_S_MAX = 300.0  # API servers end watches after five to ten minutes


class Waiting:
    """One waiter for a lock that was held, or kept closed."""

    def __init__(self, lock: LockObject, leases: Leases, sessions: Sessions, runtime: Runtime) -> None:
        self._lock = lock
        self._leases = leases
        self._sessions = sessions
        self._runtime = runtime
        self._lock_id = lock_id(leases.prefix, lock.name)
        self._session_id = lock.session_id if lock.grant_id is not None else None
        self._sighting: Sighting | None = None

    def wait(self, until: float) -> None:
        """Return when the lock has another holder or none, when its holder ended or stopped renewing, or at `until`."""
        now = self._runtime.monotonic()
        ids = ",".join(filter(None, (self._lock_id, self._session_id)))
        listed, version = self._leases.snapshot(id=ids, until=now + self._leases.call_timeout_s)
        if self._has_changed(listed):
            return
        for_s = min(_WATCH_S_MAX, max(0.0, until - now))
        with self._leases.watch(version, id=ids, for_s=for_s, until=now + self._leases.call_timeout_s) as watch:
            if watch.status != OK:
                self._runtime.sleep(max(0.0, min(_PAUSE_S, self._end(until) - self._runtime.monotonic())))
                return
            while (event := watch.next_event(self._end(until))) is not None:
                if self._is_news(event):
                    return

    def _has_changed(self, listed: list[Json]) -> bool:
        found = {_id_of(lease): lease for lease in listed}
        if self._session_id is not None:
            self._sighting = self._sessions.note(self._session_id, found.get(self._session_id))
            if self._sighting is None:
                return True
        return self._lock_id not in found or not self._is_same(found[self._lock_id])

    def _is_news(self, event: Json) -> bool:
        kind, lease = event.get("type"), event.get("object") or {}
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            return True  # an error, usually because the watch fell behind: check again
        if _id_of(lease) == self._session_id:
            self._sighting = self._sessions.note(self._session_id, None if kind == "DELETED" else lease)
            return self._sighting is None
        return kind == "DELETED" or not self._is_same(lease)

    def _is_same(self, lease: Json) -> bool:
        there = read_lock(lease)
        return (there.grant_id, there.token) == (self._lock.grant_id, self._lock.token)

    def _end(self, until: float) -> float:
        return until if self._sighting is None else min(until, self._sighting.alive_until())


def _id_of(lease: Json) -> str:
    return str((lease["metadata"].get("labels") or {}).get(ID))
