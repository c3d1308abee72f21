"""What users hold: a connected store that gives locks, exclusive functions and elections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Self

from fencepost.core.duration import Duration, seconds, spelled
from fencepost.core.events import Event, Observer, What
from fencepost.core.grants import Grant, LeaseRecord, PastGrant
from fencepost.core.names import holder_name, lock_name
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick
from fencepost.core.timings import DEFAULT_TTL_S, Timings
from fencepost.errors import InvalidTimings, StoreClosed
from fencepost.leases.election import Election
from fencepost.leases.exclusive import Exclusive
from fencepost.leases.keeper import Keeper
from fencepost.leases.lease import Lease
from fencepost.leases.lock import Lock, Wish
from fencepost.leases.observers import Observers
from fencepost.leases.store import Capabilities, KeepsHistory, LeaseStore


class Locks:
    """Locks on one store. Made by `fencepost.locks.connect`; safe to share between threads.

    In a forked child it starts afresh: leases taken before the fork belong to the parent.
    """

    def __init__(
        self,
        store: LeaseStore,
        *,
        runtime: Runtime,
        holder: str | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._label = holder
        self._observers = Observers(observers)
        self._lock = runtime.lock()
        self._keepers: dict[Timings, Keeper] = {}
        self._known: dict[tuple[object, ...], Keeper] = {}
        self._elections: list[Election] = []
        self._is_closed = False
        self.holder = self._new_holder()
        runtime.after_fork(self, self._forget)
        runtime.at_exit(self, self.close)

    @property
    def capabilities(self) -> Capabilities:
        """What the store can do, and its grade."""
        return self._store.capabilities

    def start(self) -> None:
        """Connect, or say why not. Reservations of the store become events."""
        for warning in self._store.start():
            self._emit(Event(What.STORE_WARNING, reason=warning))

    def observe(self, observer: Observer) -> None:
        """Call `observer` for every event from now on."""
        self._observers.add(observer)

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL_S,
        wait: Duration = 0,
        at_least: Duration = 0,
        tick: datetime | str | Tick | None = None,
        at_most_once: bool = False,
        floor: int = 0,
        **timings: Duration,
    ) -> Lock:
        """Return a lock to enter with ``with`` or ``async with``; entering raises `LockHeld` or `TickDone`.

        Args:
            name: what is locked; printable, up to 200 characters.
            ttl: how long the store keeps the lock after the last sign of life. It is renewed in the background
                all the while, so it does not bound the work, only how long others wait after a crash.
            wait: how long to wait for a lock that is held.
            at_least: how long the lock stays closed to everybody, counted from when it was got, even if the
                work ends sooner: for jobs shorter than the difference between two machines' clocks.
            tick: the due time this work is for; one at or below the last done is refused as `TickDone`.
            at_most_once: count the tick as done when the lock is taken, not when the work ended well.
            floor: the smallest token to accept, for a holder that met a fence ahead of it.
            **timings: ``margin``, ``renew_every``, ``call_timeout``, ``retry_every``, ``term_grace``, ``kill``;
                scaled from the ttl unless given, and validated together.
        """
        due = tick if tick is None or isinstance(tick, Tick) else Tick.of(tick, at_most_once=at_most_once)
        wait_s = seconds(wait, what="wait") if wait != 0 else 0.0
        at_least_s = seconds(at_least, what="at_least") if at_least != 0 else 0.0
        wish = Wish(lock_name(name), wait_s, at_least_s, due, floor)
        return Lock(
            wish=wish, keeper=self._keeper(ttl, timings), store=self._store, runtime=self._runtime, emit=self._emit
        )

    def try_lock(self, name: str, **wishes: object) -> Lease | None:
        """Return the lease, or None if it is held or the tick is done. Takes what `lock` takes."""
        outcome = self.lock(name, **wishes).attempt()  # type: ignore[arg-type]
        return outcome if isinstance(outcome, Lease) else None

    def exclusive(self, name: str, **wishes: object) -> Exclusive:
        """Decorate a function to run only while it holds the lock; ``{parameter}`` in the name is filled in.

        Held elsewhere, the call returns a false `Skipped` that says why. Takes what `lock` takes.
        """
        if "{" not in name:
            lock_name(name)
        return Exclusive(name, lambda filled: self.lock(filled, **wishes), self._emit)  # type: ignore[arg-type]

    def election(
        self,
        name: str,
        *,
        on_elected: Callable[..., object] | None = None,
        on_lost: Callable[..., object] | None = None,
        ttl: Duration = DEFAULT_TTL_S,
        **timings: Duration,
    ) -> Election:
        """Stand for election in the background, until `Election.stop`.

        `on_elected(lease)` runs on a task of its own; `on_lost(lease)` when leadership ends. Both may also take
        no parameter.
        """
        election = Election(
            name=lock_name(name),
            keeper=self._keeper(ttl, timings),
            store=self._store,
            runtime=self._runtime,
            emit=self._emit,
            on_elected=on_elected,
            on_lost=on_lost,
        )
        self._elections.append(election)
        return election

    def read(self, name: str) -> LeaseRecord | None:
        """Return what the store knows of a lock, or None if it was never taken."""
        return self._store.read(lock_name(name))

    def records(self) -> Iterator[LeaseRecord]:
        """Return what the store knows of every lock."""
        return self._store.records()

    def history(self, name: str | None = None, *, limit: int = 100) -> list[PastGrant] | None:
        """Return ended grants, newest first, or None if this store keeps no history."""
        if isinstance(self._store, KeepsHistory):
            return self._store.history(lock_name(name) if name is not None else None, limit=limit)
        return None

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Ask the store which of these grants, of whatever holder, are not current any more (by grant id)."""
        return self._store.missing(grants)

    def revoke(self, name: str) -> LeaseRecord | None:
        """Take a lock away from whoever holds it; return what was taken, or None if nobody held it.

        The holder learns of it with its next renewal or check; until then only a fence stops its writes.
        """
        record = self._store.read(lock_name(name))
        if record is None or not record.is_held or not self._store.revoke(record):
            return None
        self._emit(
            Event(
                What.REVOKED,
                lock=name,
                holder=self.holder,
                token=record.token,
                grant_id=record.grant_id,
                previous_holder=record.holder,
            )
        )
        return record

    def close(self) -> None:
        """End elections, release every lock, and close the connections; no more locks are given."""
        self._is_closed = True
        elections, self._elections = self._elections, []
        for election in elections:
            election.stop()
        with self._lock:
            keepers, self._keepers, self._known = list(self._keepers.values()), {}, {}
        for keeper in keepers:
            keeper.close()
        self._store.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _emit(self, event: Event) -> None:
        """Tell the observers. As a method it keeps this object alive with the leases that need it at fork and exit."""
        self._observers(event)

    def _new_holder(self) -> str:
        runtime = self._runtime
        return holder_name(host=self._label or runtime.host(), pid=runtime.process_id(), start_id=runtime.new_id())

    def _keeper(self, ttl: Duration, changes: dict[str, Duration]) -> Keeper:
        """Find the keeper of these timings; each way to write them is validated once, for this is a hot path."""
        key = (type(ttl), ttl, *sorted(changes.items()))  # the type, because True is 1 and yet no duration
        try:
            return self._known[key]
        except (KeyError, TypeError):  # TypeError: it cannot even be a key, and what follows says why
            keeper = self._known[key] = self._keeper_of(self._timings(ttl, changes))
            return keeper

    def _keeper_of(self, timings: Timings) -> Keeper:
        with self._lock:
            if self._is_closed:
                raise StoreClosed
            if timings not in self._keepers:
                self._keepers[timings] = Keeper(
                    store=self._store,
                    runtime=self._runtime,
                    timings=timings,
                    holder=self.holder,
                    emit=self._emit,
                )
            return self._keepers[timings]

    def _timings(self, ttl: Duration, changes: dict[str, Duration]) -> Timings:
        timings = Timings.of(ttl, **changes)
        smallest_s = self._store.capabilities.smallest_ttl_s
        if timings.ttl_s < smallest_s:
            raise InvalidTimings(f"ttl {spelled(timings.ttl_s)} must be ≥ {spelled(smallest_s)} on this store")
        return timings

    def _forget(self) -> None:
        self._lock = self._runtime.lock()
        for keeper in self._keepers.values():
            keeper.forget()
        self._keepers, self._known, self._elections = {}, {}, []
        self.holder = self._new_holder()
        self._store.forget_connections()
