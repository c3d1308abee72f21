"""The store: locks as Lease objects, changed by compare-and-set on their resource version.

The store remembers the last object it saw of each name, so that taking and releasing a free name takes one request
each. A remembered object may be outdated; then its version is too, the server refuses the write, and the name is read
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from fencepost.core.fencing import AHEAD_US
from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, Renewed, Session, next_token
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick
from fencepost.errors import StoreRefused, StoreUnavailable
from fencepost.leases.store import Capabilities, Grade
from fencepost.leases.stores.known_names import KnownNames
from fencepost.leases.stores.kubernetes.api import ApiServer
from fencepost.leases.stores.kubernetes.clock import ServerClock, may_have_begun_again, store_time_us
from fencepost.leases.stores.kubernetes.config import ApiAddress
from fencepost.leases.stores.kubernetes.objects import (
    LockObject,
    lock_object_name,
    new_lock,
    read_lock,
)
from fencepost.leases.stores.kubernetes.requests import Leases
from fencepost.leases.stores.kubernetes.rights import check_rights
from fencepost.leases.stores.kubernetes.sessions import Sessions, Sighting
from fencepost.leases.stores.kubernetes.waiting import Waiting

_TRIES = 10  # conflicts in a row: each means that another contender made progress
_KNOWN_MAX = 5000  # bounds memory; a forgotten name costs one request
_READ_SINGLY_MAX = 4  # more are read faster as a list
_SECOND_US = 1_000_000
_LOOK_AGAIN_S = 0.1  # each look is a request; it takes ten of them at most until the server's second changes


@dataclass(frozen=True, slots=True)
class _Wish:
    """The parameters of an acquisition."""

    session: Session
    grant_id: str
    tick: Tick | None
    floor: int

    def is_done_in(self, lock: LockObject) -> bool:
        return self.tick is not None and lock.last_tick_us is not None and self.tick.at_us <= lock.last_tick_us


class KubernetesStore:
    """Leases in one namespace of a Kubernetes cluster."""

    capabilities = Capabilities(
        grade=Grade.CONSENSUS,
        server_clock=False,
        watch=True,
        renewal_sees_grants=False,
        smallest_ttl_s=1.0,
        loses="what a restored backup of the cluster's etcd had not seen yet",
    )

    def __init__(self, find: Callable[[], ApiAddress], runtime: Runtime, *, prefix: str, call_timeout_s: float) -> None:
        """Keep `find` for the first request: address and credentials are read only then."""
        self._runtime = runtime
        self._prefix = prefix
        self._call_timeout_s = call_timeout_s
        self._clock = ServerClock()
        self._api = ApiServer(find, runtime, self._clock)
        self._heartbeat_api = ApiServer(find, runtime, self._clock)
        self._leases = Leases(self._api, prefix, call_timeout_s)
        heartbeat = Leases(self._heartbeat_api, prefix, call_timeout_s)
        self._sessions = Sessions(self._leases, heartbeat, runtime, self._clock)
        self._known: KnownNames[LockObject] = KnownNames(_KNOWN_MAX)

    @property
    def requests(self) -> int:
        """The number of requests that were sent so far."""
        return self._api.requests + self._heartbeat_api.requests

    def start(self) -> tuple[str, ...]:
        """Check credentials, permissions and namespace, and that the server shows its clock."""
        check_rights(self._api, prefix=self._prefix, until=self._until())
        if not self._clock.is_known:
            raise StoreRefused(
                "the Kubernetes API server's answers carry no Date header; something between strips it, and tokens and "
                "the time for which a lock is kept closed need it"
            )
        return ()

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        """Create the session's Lease."""
        session = Session(self._runtime.new_id(), holder, ttl_s)
        self._sessions.open(session, call_timeout_s=call_timeout_s, until=self._until())
        return session

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Patch the session's Lease: one request. It does not check the locks; `missing` does."""
        return self._sessions.renew(session)

    def close(self, session: Session) -> None:
        """Delete the session's Lease, which frees its locks."""
        self._sessions.close(session, until=self._until())

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Take the name: with one request if it is free and was seen before."""
        wish, until = _Wish(session, grant_id, tick, floor), self._until()
        if self._sessions.is_gone(session, until=until):
            return Lost("the session was closed, or not renewed for a full ttl")
        lock = self._known.get(name)
        if lock is None or not self._is_open(lock) or wish.is_done_in(lock):
            lock = None
        for _ in range(_TRIES):
            if lock is None:
                lock = self._fetch_or_create(name, until)
                if (answer := self._answer(wish, lock, until)) is not None:
                    return answer
            if (taken := self._take(wish, lock, until)) is not None:
                return Grant(name, session, grant_id, taken.token, tick)
            lock = None
        return Held(name, None, self._token_of(name), free_in_s=0.0)  # others were faster every time

    def _answer(self, wish: _Wish, lock: LockObject, until: float) -> Grant | Held | AlreadyDone | None:
        """Return the result for the state that was just read; None: the name is free and can be taken."""
        if lock.grant_id == wish.grant_id:
            return Grant(lock.name, wish.session, wish.grant_id, lock.token, wish.tick)
        if (held := self._held(lock, self._holder_or_kill(lock, until))) is not None:
            return held
        if wish.tick is not None and lock.last_tick_us is not None and wish.is_done_in(lock):
            return AlreadyDone(lock.name, wish.tick, lock.last_tick_us)
        return None

    def _take(self, wish: _Wish, lock: LockObject, until: float) -> LockObject | None:
        """Write the grant; None if another process wrote first."""
        time_us = store_time_us(self._clock.date_s, lock.version)
        wanted = lock.granted(
            wish.session,
            grant_id=wish.grant_id,
            token=next_token(previous=lock.token, floor=wish.floor, store_time_us=time_us),
            last_tick_us=wish.tick.at_us if wish.tick and wish.tick.at_most_once else lock.last_tick_us,
            now_us=self._clock.earliest_us(self._runtime.monotonic()),
        )
        return self._replace(wanted, until, ttl_s=wish.session.ttl_s)

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Release the grant if it is current: with one request while the session is known to be alive."""
        until = self._until()
        if self._sessions.is_gone(grant.session, until=until):
            return False
        lock = self._known.get(grant.name)
        if lock is None or lock.grant_id != grant.grant_id:
            lock = self._fetch(grant.name, until)
        has_tried = False
        for _ in range(_TRIES):
            if lock is None or lock.grant_id != grant.grant_id:
                return has_tried and lock is not None and lock.released_id == grant.grant_id
            if self._replace(self._released(lock, grant, done, keep_for_s), until) is not None:
                return True
            has_tried = True
            lock = self._fetch(grant.name, until)
        raise StoreUnavailable(f"lock {grant.name!r} changed with every attempt to release it")

    def _released(self, lock: LockObject, grant: Grant, done: bool, keep_for_s: float) -> LockObject:
        last_tick_us = lock.last_tick_us
        if done and grant.tick is not None:
            last_tick_us = max(grant.tick.at_us, last_tick_us or grant.tick.at_us)
        kept_until_us = 0
        if keep_for_s > 0:  # from the latest possible server time, so that it is never too short
            kept_until_us = self._clock.latest_us(self._runtime.monotonic()) + round(keep_for_s * _SECOND_US)
        return lock.freed(last_tick_us=last_tick_us, kept_until_us=kept_until_us, released_id=grant.grant_id)

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Compare with the Leases: a few are read one by one, many as one list."""
        until = self._until()
        sessions = {grant.session for grant in grants}
        living = {session.id for session in sessions if self._is_alive(session, until)}
        if len(grants) <= _READ_SINGLY_MAX:
            found = (self._fetch(grant.name, until) for grant in grants)
            locks = [lock for lock in found if lock is not None]
        else:
            listed = self._leases.all(session=",".join(session.id for session in sessions), until=until)
            locks = [read_lock(lease) for lease in listed]
        current = {lock.grant_id for lock in locks if lock.session_id in living}
        return frozenset(grant.grant_id for grant in grants if grant.grant_id not in current)

    def read(self, name: str) -> LeaseRecord | None:
        """Read one name and its holder's session."""
        until = self._until()
        lock = self._fetch(name, until)
        return None if lock is None or not lock.token else self._record(lock, self._holder(lock, until))

    def records(self) -> Iterator[LeaseRecord]:
        """Read all names: two lists."""
        until = self._until()
        locks = [read_lock(lease) for lease in self._leases.all(kind="lock", until=until)]
        holders = self._sessions.note_all(self._leases.all(kind="session", until=until))
        ordered = sorted((lock for lock in locks if lock.token), key=lambda lock: lock.name)
        return iter([self._record(lock, holders.get(lock.session_id or "")) for lock in ordered])

    def revoke(self, record: LeaseRecord) -> bool:
        """Take the name away, if its grant is still the current one."""
        until = self._until()
        for _ in range(_TRIES):
            lock = self._fetch(record.name, until)
            if lock is None or lock.grant_id is None or lock.grant_id != record.grant_id:
                return False
            if self._replace(lock.freed(last_tick_us=lock.last_tick_us), until) is not None:
                return True
        raise StoreUnavailable(f"lock {record.name!r} changed with every attempt to revoke it")

    def reset(self, name: str, token: int, *, reason: str) -> int | None:
        """Reset a token that a wrong clock has put ahead; see `ResetsTokens`."""
        until = self._until()
        for _ in range(_TRIES):
            lock = self._fetch(name, until)
            if lock is None or lock.grant_id is not None or lock.token != token:
                return None
            now_us = store_time_us(self._clock.date_s, lock.version)
            if token <= now_us + AHEAD_US:
                return None
            if self._replace(replace(lock, token=now_us), until) is not None:
                return now_us
        raise StoreUnavailable(f"lock {name!r} changed with every attempt to reset it")

    def wait_change(self, held: Held, timeout_s: float) -> None:
        """Watch the lock and its holder's session, until the lock is released or the session is no longer renewed."""
        until = self._until()
        lock = self._known.get(held.name)
        if lock is None or lock.grant_id != held.grant_id:
            lock = self._fetch(held.name, until)
        if lock is None or (lock.grant_id, lock.token) != (held.grant_id, held.token):
            return
        Waiting(lock, self._leases, self._sessions, self._runtime).wait(self._runtime.monotonic() + timeout_s)

    def shutdown(self) -> None:
        """Close the connections."""
        self._api.end()
        self._heartbeat_api.end()

    def forget_connections(self) -> None:
        """In a forked child: leave the connections to the parent."""
        self._api.forget()
        self._heartbeat_api.forget()

    # --- one lock

    def _fetch(self, name: str, until: float) -> LockObject | None:
        lease = self._leases.get(lock_object_name(self._prefix, name), until=until)
        if lease is None:
            self._known.pop(name, None)
            return None
        return self._remember(read_lock(lease, name))

    def _fetch_or_create(self, name: str, until: float) -> LockObject:
        lock = self._fetch(name, until)
        if lock is None:
            lease = self._leases.create(new_lock(self._prefix, name), until=until)
            lock = self._fetch(name, until) if lease is None else self._remember(read_lock(lease, name))
        if lock is None:
            raise StoreUnavailable(f"the Lease of lock {name!r} was deleted while it was being created")
        if not lock.token and may_have_begun_again(lock.version):
            self._await_next_second(until)
        return lock

    def _await_next_second(self, until: float) -> None:
        """Wait until the server's date changes.

        An empty record may replace one that was deleted by hand within this second, and whose token is lost. See
        `clock.may_have_begun_again`.
        """
        second = self._clock.date_s
        while self._clock.date_s <= second:
            self._runtime.sleep(_LOOK_AGAIN_S)
            self._leases.page(kind="none", until=until)

    def _replace(self, wanted: LockObject, until: float, *, ttl_s: float | None = None) -> LockObject | None:
        self._known.pop(wanted.name, None)  # until the reply arrives, the state is unknown
        lease = self._leases.replace(wanted.metadata["name"], wanted.body(ttl_s), until=until)
        return None if lease is None else self._remember(read_lock(lease, wanted.name))

    def _remember(self, lock: LockObject) -> LockObject:
        self._known.remember(lock.name, lock)
        return lock

    def _token_of(self, name: str) -> int:
        lock = self._known.get(name)
        return 0 if lock is None else lock.token

    # --- who holds it

    def _is_open(self, lock: LockObject) -> bool:
        """Whether it is neither held nor kept closed, according to what was read."""
        return lock.grant_id is None and self._closed_for_s(lock) <= 0 and lock.token > 0

    def _closed_for_s(self, lock: LockObject) -> float:
        if not lock.kept_until_us:
            return 0.0
        return (lock.kept_until_us - self._clock.earliest_us(self._runtime.monotonic())) / _SECOND_US

    def _holder(self, lock: LockObject, until: float) -> Sighting | None:
        """Return the live session that has the lock, if there is one."""
        if lock.grant_id is None or lock.session_id is None:
            return None
        return self._sessions.see(lock.session_id, until=until)

    def _holder_or_kill(self, lock: LockObject, until: float) -> Sighting | None:
        """Return the same, for an acquisition: a session that has expired is ended now."""
        if lock.grant_id is None or lock.session_id is None:
            return None
        return self._sessions.see_or_kill(lock.session_id, until=until)

    def _is_alive(self, session: Session, until: float) -> bool:
        return not self._sessions.has_lapsed(session) and self._sessions.see(session.id, until=until) is not None

    def _held(self, lock: LockObject, holder: Sighting | None) -> Held | None:
        if holder is not None:
            free_in_s = max(0.0, holder.alive_until() - self._runtime.monotonic())
            return Held(lock.name, lock.holder, lock.token, lock.grant_id, free_in_s)
        closed_for_s = self._closed_for_s(lock)
        return Held(lock.name, None, lock.token, None, closed_for_s, is_kept=True) if closed_for_s > 0 else None

    def _record(self, lock: LockObject, holder: Sighting | None) -> LeaseRecord:
        held = self._held(lock, holder)
        is_held = holder is not None
        return LeaseRecord(
            name=lock.name,
            token=lock.token,
            holder=lock.holder if is_held else None,
            grant_id=lock.grant_id if is_held else None,
            session_id=lock.session_id if is_held else None,
            acquired_at_us=lock.acquired_at_us if is_held else None,
            free_in_s=held.free_in_s if held else None,
            last_tick_us=lock.last_tick_us,
        )

    def _until(self) -> float:
        return self._runtime.monotonic() + self._call_timeout_s
