"""The keeper: acquires leases with one set of timings at one store, on a session that it opens when needed.

One session serves all leases with the same timings, so a process with a thousand locks renews them in the one round
trip (or pipeline) that the store promises. After a session is lost, retired, or idle for a ttl, the next acquisition
opens another.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.core.events import Event
from fencepost.core.grants import AlreadyDone, Grant, Held, Lost
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick
from fencepost.core.timings import Timings
from fencepost.errors import StoreClosed, StoreUnavailable
from fencepost.leases.kept_session import KeptSession
from fencepost.leases.lease import Lease
from fencepost.leases.store import LeaseStore

_SESSIONS_TRIED = 3  # one that ends during an acquisition is an accident; three in a row are a fault of the store


class Keeper:
    """Acquires and keeps leases that share `timings`."""

    def __init__(
        self, *, store: LeaseStore, runtime: Runtime, timings: Timings, holder: str, emit: Callable[[Event], None]
    ) -> None:
        self.timings = timings
        self._store = store
        self._runtime = runtime
        self._holder = holder
        self._emit = emit
        self._lock = runtime.lock()
        self._kept: KeptSession | None = None
        self._older: list[KeptSession] = []
        self._is_closed = False

    def acquire(
        self, name: str, *, tick: Tick | None = None, floor: int = 0, at_least_s: float = 0.0
    ) -> Lease | Held | AlreadyDone:
        """Ask the store once. After `StoreUnavailable`, a lease that may have been granted is released."""
        for _ in range(_SESSIONS_TRIED):
            grant_id = self._runtime.new_id()
            kept = self._reserve(grant_id)
            try:
                outcome = self._store.acquire(kept.session, name, grant_id=grant_id, tick=tick, floor=floor)
                answer = self._answer(kept, grant_id, outcome, at_least_s)
            except BaseException:  # no reply, or interrupted before the caller has the lease
                kept.unanswered(name, grant_id)
                raise
            if answer is not None:
                return answer
        raise StoreUnavailable(f"the store ended {_SESSIONS_TRIED} sessions in a row before one could hold the lock")

    def _answer(
        self, kept: KeptSession, grant_id: str, outcome: Grant | Held | AlreadyDone | Lost, at_least_s: float
    ) -> Lease | Held | AlreadyDone | None:
        """Return the outcome for the caller; None if the session has ended in the meantime."""
        if isinstance(outcome, Lost):
            kept.found_dead(grant_id, outcome.reason)
            return None
        if not isinstance(outcome, Grant):
            kept.refused(grant_id)
            if isinstance(outcome, Held) and outcome.grant_id is not None:
                for each in (*self._older, kept):
                    each.release_again(outcome.grant_id)
            return outcome
        lease = Lease(
            grant=outcome,
            kept=kept,
            store=self._store,
            runtime=self._runtime,
            emit=self._emit,
            at_least_s=at_least_s,
        )
        if kept.adopt(lease):
            return lease
        kept.owe_release(outcome, done=False, keep_until=0.0)
        return None

    def close(self) -> None:
        """End all sessions for good; their leases are free."""
        with self._lock:
            self._is_closed = True
            ended = [*self._older, *([self._kept] if self._kept else [])]
            self._kept, self._older = None, []
        for kept in ended:
            kept.close()

    def forget(self) -> None:
        """In a forked child: drop the sessions, which belong to the parent."""
        self._lock = self._runtime.lock()
        for kept in [*self._older, *([self._kept] if self._kept else [])]:
            kept.forget()
        self._kept, self._older = None, []

    def _reserve(self, grant_id: str) -> KeptSession:
        """Return a session that accepts leases, with one acquisition registered on it."""
        kept = self._kept
        if kept is not None and kept.begin(grant_id):
            return kept
        with self._lock:
            if self._is_closed:
                raise StoreClosed
            if self._kept is not None and self._kept.begin(grant_id):  # another thread has just opened one
                return self._kept
            if self._kept is not None:
                self._older = [kept for kept in self._older if kept.is_trusted()] + [self._kept]
                self._kept = None  # opening may fail; the next call must not append the old session again
            self._kept = kept = self._open()
            if not kept.begin(grant_id):
                raise StoreUnavailable("opening a session took longer than the session can be trusted")
            return kept

    def _open(self) -> KeptSession:
        opened_at = self._runtime.monotonic()
        session = self._store.open(self._holder, ttl_s=self.timings.ttl_s, call_timeout_s=self.timings.call_timeout_s)
        shorter = session.ttl_s < self.timings.ttl_s
        kept = KeptSession(
            store=self._store,
            runtime=self._runtime,
            timings=Timings.of(session.ttl_s) if shorter else self.timings,
            session=session,
            opened_at=opened_at,
            emit=self._emit,
        )
        kept.run()
        return kept
