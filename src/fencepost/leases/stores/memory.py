"""Leases in the memory of one process: for tests, and for programs that consist of one process.

URL: ``memory://`` (a new store) or ``memory://name`` (shared by all connections with that name).

Grade: *process*. It is lost with the process, and other processes do not see it; in a forked child it is empty. Tokens
still increase from one start of the process to the next, because they follow the clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from fencepost.core.fencing import AHEAD_US
from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, PastGrant, Renewed, Session, next_token
from fencepost.core.runtime import Flag, Runtime
from fencepost.core.tick import Tick
from fencepost.leases.store import Capabilities, Grade
from fencepost.leases.urls import StoreUrl

_HISTORY_LENGTH = 1000  # ended grants, so that memory stays bounded
_shared: dict[str, MemoryStore] = {}


def from_url(url: StoreUrl, runtime: Runtime) -> MemoryStore:
    """Return a new store, or the shared one with the name in the URL."""
    url.only_options(())
    name = url.hosts[0][0] if url.hosts else ""
    if not name:
        return MemoryStore(runtime)
    if name not in _shared:
        _shared.setdefault(name, MemoryStore(runtime))  # atomic: if two threads call at once, both get the same one
    return _shared[name]


@dataclass(frozen=True, slots=True)
class _Entry:
    """The state of one name."""

    token: int = 0
    grant: Grant | None = None
    acquired_at: float = 0.0
    acquired_at_us: int = 0
    closed_until: float = 0.0
    last_tick_us: int | None = None


class MemoryStore:
    """A dictionary with a lock. The reference implementation of the contract."""

    capabilities = Capabilities(
        grade=Grade.PROCESS,
        durable_token=False,
        watch=True,
        keeps_history=True,
        scope="process",
        loses="everything, when the process ends",
    )

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._alive_until: dict[str, float] = {}
        self._entries: dict[str, _Entry] = {}
        self._history: list[PastGrant] = []
        self._waiters: dict[str, list[Flag]] = {}
        runtime.after_fork(self, self.wipe)

    def start(self) -> tuple[str, ...]:
        """Warn that other processes do not see these locks."""
        return ("memory:// keeps locks in this process alone; other processes do not see them",)

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        """Open a session."""
        session = Session(self._runtime.new_id(), holder, ttl_s)
        with self._lock:
            self._alive_until[session.id] = self._runtime.monotonic() + ttl_s
        return session

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Extend the session if it is still alive."""
        with self._lock:
            if not self._is_alive(session.id):
                return Lost("the session expired")
            self._alive_until[session.id] = self._runtime.monotonic() + session.ttl_s
            return Renewed(self._missing(grants))

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Take the name."""
        with self._lock:
            if not self._is_alive(session.id):
                return Lost("the session expired")
            entry = self._entries.get(name, _Entry())
            if entry.grant is not None and entry.grant.grant_id == grant_id:
                return entry.grant
            if (held := self._held(name, entry)) is not None:
                return held
            if tick is not None and entry.last_tick_us is not None and tick.at_us <= entry.last_tick_us:
                return AlreadyDone(name, tick, entry.last_tick_us)
            if entry.grant is not None:
                self._end(entry, why="expired")
            now_us = self._runtime.wall_us()
            token = next_token(previous=entry.token, floor=floor, store_time_us=now_us)
            grant = Grant(name, session, grant_id, token, tick)
            self._entries[name] = _Entry(
                token=token,
                grant=grant,
                acquired_at=self._runtime.monotonic(),
                acquired_at_us=now_us,
                last_tick_us=tick.at_us if tick is not None and tick.at_most_once else entry.last_tick_us,
            )
            return grant

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Release the grant if it is current."""
        with self._lock:
            entry = self._entries.get(grant.name)
            if entry is None or not self._is_current(grant):
                return False
            self._end(entry, why="released")
            self._entries[grant.name] = replace(
                entry,
                grant=None,
                closed_until=self._runtime.monotonic() + keep_for_s,
                last_tick_us=grant.tick.at_us if done and grant.tick is not None else entry.last_tick_us,
            )
            self._wake(grant.name)
            return True

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Compare with the current grants."""
        with self._lock:
            return self._missing(grants)

    def close(self, session: Session) -> None:
        """End the session and its grants."""
        with self._lock:
            self._alive_until.pop(session.id, None)
            for name, entry in self._entries.items():
                if entry.grant is not None and entry.grant.session.id == session.id:
                    self._end(entry, why="session closed")
                    self._entries[name] = replace(entry, grant=None)
                    self._wake(name)

    def read(self, name: str) -> LeaseRecord | None:
        """Read one name."""
        with self._lock:
            entry = self._entries.get(name)
            return None if entry is None else self._record(name, entry)

    def records(self) -> Iterator[LeaseRecord]:
        """Read all names."""
        with self._lock:
            return iter([self._record(name, entry) for name, entry in sorted(self._entries.items())])

    def history(self, name: str | None, *, limit: int) -> list[PastGrant]:
        """Return the last ended grants, newest first."""
        with self._lock:
            wanted = [past for past in reversed(self._history) if name in (None, past.name)]
        return wanted[:limit]

    def revoke(self, record: LeaseRecord) -> bool:
        """Take the name away."""
        with self._lock:
            entry = self._entries.get(record.name)
            if entry is None or entry.grant is None or entry.grant.grant_id != record.grant_id:
                return False
            self._end(entry, why="revoked")
            self._entries[record.name] = replace(entry, grant=None)
            self._wake(record.name)
            return True

    def reset(self, name: str, token: int, *, reason: str) -> int | None:
        """Reset a token that a wrong clock has put ahead; see `ResetsTokens`."""
        with self._lock:
            entry, now_us = self._entries.get(name), self._runtime.wall_us()
            is_ahead = entry is not None and entry.token == token > now_us + AHEAD_US
            if entry is None or not is_ahead or self._held(name, entry) is not None:
                return None
            self._entries[name] = replace(entry, token=now_us, grant=None)
            return now_us

    def wait_change(self, held: Held, timeout_s: float) -> None:
        """Wait for a release."""
        changed = self._runtime.event()
        with self._lock:
            entry = self._entries.get(held.name, _Entry())
            if entry.token != held.token or (entry.grant is None and held.grant_id is not None):
                return
            self._waiters.setdefault(held.name, []).append(changed)
        changed.wait(timeout_s)
        with self._lock:
            waiters = self._waiters.get(held.name, [])
            if changed in waiters:
                waiters.remove(changed)

    def shutdown(self) -> None:
        """Nothing to close."""

    def forget_connections(self) -> None:
        """Nothing is inherited: `wipe` empties the store in a forked child."""

    def wipe(self) -> None:
        """Forget everything, as a restart would."""
        self._lock = self._runtime.lock()
        self._alive_until.clear()
        self._entries.clear()
        self._history.clear()
        self._waiters.clear()

    def _is_alive(self, session_id: str) -> bool:
        return self._runtime.monotonic() < self._alive_until.get(session_id, float("-inf"))

    def _is_current(self, grant: Grant) -> bool:
        """Compare name and grant id only: a caller that asks about another's grant does not know its session."""
        entry = self._entries.get(grant.name)
        return (
            entry is not None
            and entry.grant is not None
            and entry.grant.grant_id == grant.grant_id
            and self._has_not_ended(entry.grant.session.id)
        )

    def _has_not_ended(self, session_id: str) -> bool:
        """Whether grants of the session are current: here its clock says so."""
        return self._is_alive(session_id)

    def _missing(self, grants: Collection[Grant]) -> frozenset[str]:
        return frozenset(grant.grant_id for grant in grants if not self._is_current(grant))

    def _held(self, name: str, entry: _Entry) -> Held | None:
        now = self._runtime.monotonic()
        if entry.grant is not None and self._is_alive(entry.grant.session.id):
            free_in_s = self._alive_until[entry.grant.session.id] - now
            return Held(name, entry.grant.session.holder, entry.token, entry.grant.grant_id, free_in_s)
        if now < entry.closed_until:
            return Held(name, None, entry.token, None, entry.closed_until - now, is_kept=True)
        return None

    def _record(self, name: str, entry: _Entry) -> LeaseRecord:
        held = self._held(name, entry)
        grant = entry.grant if held is not None else None
        return LeaseRecord(
            name=name,
            token=entry.token,
            holder=grant.session.holder if grant else None,
            grant_id=grant.grant_id if grant else None,
            session_id=grant.session.id if grant else None,
            acquired_at_us=entry.acquired_at_us if grant else None,
            free_in_s=held.free_in_s if held else None,
            last_tick_us=entry.last_tick_us,
        )

    def _end(self, entry: _Entry, *, why: str) -> None:
        if entry.grant is None:
            return
        self._history.append(
            PastGrant(
                name=entry.grant.name,
                holder=entry.grant.session.holder,
                token=entry.token,
                acquired_at_us=entry.acquired_at_us,
                ended_at_us=self._runtime.wall_us(),
                why=why,
            )
        )
        del self._history[:-_HISTORY_LENGTH]

    def _wake(self, name: str) -> None:
        for changed in self._waiters.pop(name, []):
            changed.set()
