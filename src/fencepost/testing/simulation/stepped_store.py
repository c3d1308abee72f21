"""A lease store whose clock can be set, as that of a database server can, and the way of a process to it.

By such a clock alone every session may look expired at once. So a process that ends one must have seen it without a
renewal for its whole ttl, by its own clock: the rule of the stores in databases, with their own `Sightings`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from fencepost.core import runtime
from fencepost.core.grants import AlreadyDone, Grant, Held, Lost, Renewed, Session
from fencepost.core.tick import Tick
from fencepost.leases.store import Watched
from fencepost.leases.stores.memory import MemoryStore
from fencepost.leases.stores.sql.sightings import Sightings
from fencepost.testing.simulation.lease_stores import InOrder, Way
from fencepost.testing.simulation.runtime import NoLock, SimRuntime, StoreRuntime


class SteppedRuntime(StoreRuntime):
    """The world as a store sees it whose clock is set now and then."""

    stepped_s = 1e6

    def monotonic(self) -> float:
        return super().monotonic() + self.stepped_s


class _Eyes(SimRuntime):
    """A process while the store answers it, which is one step."""

    def lock(self) -> runtime.Mutex:
        return NoLock()


class SteppedStore(MemoryStore):
    """Sessions expire by a clock that may be set; one that was not ended is renewed, whatever that clock shows."""

    def __init__(self, world: SteppedRuntime) -> None:
        super().__init__(world)
        self._stepped = world

    def step(self, seconds: float) -> None:
        """Set the clock."""
        self._stepped.stepped_s += seconds

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Extend the session, unless it was ended."""
        if session.id not in self._alive_until:
            return Lost("the session was ended")
        self._alive_until[session.id] = self._runtime.monotonic() + session.ttl_s
        return Renewed(self._missing(grants))

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Take the name; what its holder is, `end` has decided."""
        if session.id not in self._alive_until:
            return Lost("the session was ended")
        self._alive_until[session.id] = max(self._alive_until[session.id], self._runtime.monotonic() + 1e-6)
        return super().acquire(session, name, grant_id=grant_id, tick=tick, floor=floor)

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Let go; what is not to be kept closed is open, wherever the clock is set to."""
        was_held = super().release(grant, done=done, keep_for_s=keep_for_s)
        if was_held and not keep_for_s:
            self._entries[grant.name] = replace(self._entries[grant.name], closed_until=float("-inf"))
        return was_held

    def holder(self, name: str) -> tuple[Session, float] | None:
        """Return the session of the holder of a name, and when it expires, even if it looks expired."""
        entry = self._entries.get(name)
        if entry is None or entry.grant is None or entry.grant.session.id not in self._alive_until:
            return None
        session = entry.grant.session
        return session, self._alive_until[session.id]

    def looks_alive(self, session: Session) -> bool:
        """Whether it has not run out, and does not run for longer than it could."""
        left_s = self._alive_until.get(session.id, float("-inf")) - self._runtime.monotonic()
        return 0.0 < left_s <= session.ttl_s

    def spare(self, name: str) -> Held:
        """Answer that a name is held, although its session looks expired."""
        entry = self._entries[name]
        assert entry.grant is not None
        return Held(name, entry.grant.session.holder, entry.token, entry.grant.grant_id, 0.0)

    def _has_not_ended(self, session_id: str) -> bool:
        """Whether it was not ended; a clock alone ends nothing."""
        return session_id in self._alive_until

    def end(self, session: Session) -> None:
        """End a session that was seen dead for long enough."""
        self.close(session)


class SteppedWay(Way):
    """The way of one process to it. What it has seen of sessions it remembers for itself."""

    def __init__(self, store: SteppedStore, own: SimRuntime, **words: Any) -> None:
        super().__init__(store, **words)
        self._stepped = store
        self._sightings = Sightings(_Eyes(own.hub, own.process, own.clock))

    def watch(self, grants: Collection[Grant]) -> Watched:
        """Return which grants are gone, by the store's clock and by the caller's own."""
        return self._do(lambda: self._watched(grants))

    def taking(self, name: str, take: Callable[[], Any]) -> Any:
        """Take a name, unless its holder looks dead and was not seen to be for long enough."""
        found = self._stepped.holder(name)
        if found is not None and not self._stepped.looks_alive(found[0]):
            if self._spared_s(*found) > 0:
                return self._stepped.spare(name)
            self._stepped.end(found[0])
        return take()

    def _watched(self, grants: Collection[Grant]) -> Watched:
        there: set[str] = set()
        again_in_s = float("inf")
        for grant in grants:
            found = self._stepped.holder(grant.name)
            if found is None or self._stepped.spare(grant.name).grant_id != grant.grant_id:
                continue
            spared_s = self._spared_s(*found)
            if spared_s > 0 or self._stepped.looks_alive(found[0]):
                there.add(grant.grant_id)
                again_in_s = min(again_in_s, spared_s) if spared_s > 0 else again_in_s
        return Watched(InOrder(grant.grant_id for grant in grants if grant.grant_id not in there), again_in_s)

    def _spared_s(self, session: Session, expires_at: float) -> float:
        return self._sightings.spared_s(session.id, mark=round(expires_at * 1e6), ttl_us=round(session.ttl_s * 1e6))
