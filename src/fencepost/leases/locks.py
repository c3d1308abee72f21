"""What users hold: a connected store that gives locks, exclusive functions and elections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, Never, Self, TypeVar, Unpack, overload

from fencepost.core.auto_tick import tick_of
from fencepost.core.duration import Duration, seconds, spelled
from fencepost.core.events import Event, Observer, What
from fencepost.core.grants import Grant, LeaseRecord, PastGrant
from fencepost.core.names import holder_name, lock_name
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick
from fencepost.core.timings import DEFAULT_TTL_S, Timings
from fencepost.errors import ConfigurationError, InvalidTimings, StoreClosed
from fencepost.leases.election import Election
from fencepost.leases.exclusive import Exclusive, Skipped, has_fields
from fencepost.leases.exclusive_options import (
    Due,
    ExclusiveOptions,
    LockWishes,
    refuse_misspelt_skip,
    refuse_unknown,
    refuse_vain_zone,
)
from fencepost.leases.keeper import Keeper
from fencepost.leases.lease import Lease
from fencepost.leases.lock import Lock, Wish
from fencepost.leases.observers import Observers
from fencepost.leases.store import (
    Capabilities,
    KeepsHistory,
    KnowsItsLedger,
    LeaseStore,
    LedgerMark,
    ResetsTokens,
    Watched,
    WatchesSessions,
)

S = TypeVar("S")

Changes = tuple[Duration | None, ...]  # of the timings but the ttl, in the order of `Timings`


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
        self._watching = store if isinstance(store, WatchesSessions) else None  # to ask that anew each time takes long
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

    def noted(self, ledger: LedgerMark) -> tuple[str, LedgerMark] | None:
        """Note how far the ledger beside the store had come; see `KnowsItsLedger`. None where it is in one with it."""
        return self._store.noted(ledger) if isinstance(self._store, KnowsItsLedger) else None

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
        tick: Due | None = None,
        tz: str | None = None,
        at_most_once: bool = False,
        floor: int = 0,
        margin: Duration | None = None,
        renew_every: Duration | None = None,
        call_timeout: Duration | None = None,
        retry_every: Duration | None = None,
        term_grace: Duration | None = None,
        kill: Duration | None = None,
    ) -> Lock:
        """Return a lock to enter with ``with`` or ``async with``; entering raises `LockHeld` or `TickDone`.

        Args:
            name: what is locked; printable, up to 200 characters.
            ttl: how long the store keeps the lock after the last sign of life. It is renewed in the background
                all the while, so it does not bound the work, only how long others wait after a crash.
            wait: how long to wait for a lock that is held.
            at_least: how long the lock stays closed to everybody, counted from when it was got, even if the
                work ends sooner: for jobs shorter than the difference between two machines' clocks.
            tick: the due time this work is for; one at or below the last done is refused as `TickDone`. With
                ``"auto:CRON"`` it is the latest due time of a cron expression, by this machine's clock.
            tz: the time zone of ``auto:CRON``; UTC by default.
            at_most_once: count the tick as done when the lock is taken, not when the work ended well.
            floor: the smallest token to accept, for a holder that met a fence ahead of it.
            margin: how long before the store's own count the holder stops trusting the lock. This and what follows are
                scaled from the ttl unless given, and validated together; see docs/timings.md.
            renew_every: how often it is renewed.
            call_timeout: how long a renewal may take.
            retry_every: how soon a renewal that was not answered is repeated.
            term_grace: how long work that is told to end may take for it.
            kill: how long it takes to kill work that did not end.
        """
        due = None if tick is None and tz is None else self._due(tick, tz, at_most_once=at_most_once)
        wait_s = seconds(wait, what="wait") if wait != 0 else 0.0
        at_least_s = seconds(at_least, what="at_least") if at_least != 0 else 0.0
        wish = Wish(lock_name(name), wait_s, at_least_s, due, floor)
        keeper = self._keeper(ttl, (margin, renew_every, call_timeout, retry_every, term_grace, kill))
        return Lock(wish=wish, keeper=keeper, store=self._store, runtime=self._runtime, emit=self._emit)

    def try_lock(self, name: str, **wishes: Unpack[LockWishes]) -> Lease | None:
        """Return the lease, or None if it is held or the tick is done. Takes what `lock` takes."""
        outcome = self.lock(name, **wishes).attempt()
        return outcome if isinstance(outcome, Lease) else None

    @overload
    def exclusive(
        self, name: str, *, on_skip: Literal["return"] = "return", **wishes: Unpack[ExclusiveOptions]
    ) -> Exclusive[Skipped]: ...
    @overload
    def exclusive(
        self, name: str, *, on_skip: Literal["raise"], **wishes: Unpack[ExclusiveOptions]
    ) -> Exclusive[Never]: ...
    @overload
    def exclusive(self, name: str, *, on_skip: S, **wishes: Unpack[ExclusiveOptions]) -> Exclusive[S]: ...
    def exclusive(self, name: str, *, on_skip: object = "return", **wishes: Unpack[ExclusiveOptions]) -> Exclusive[Any]:
        """Decorate a function to run only while it holds the lock; ``{parameter}`` in the name is filled in.

        Takes what `lock` takes, and refuses the rest at once. ``tick`` may also be ``"{parameter}"``, or a function of
        the call's arguments that returns a due time. Around a function that a scheduler of your own calls on several
        machines, ``tick="auto:CRON"`` lets each due time run once; ``at_least`` keeps the lock closed where there is
        no due time to name.

        Held elsewhere, or done already, the call returns a false `Skipped` that says why (``on_skip="return"``), raises
        `LockHeld` or `TickDone` (``"raise"``), or returns the value given as `on_skip`.
        """
        if not isinstance(name, str):
            raise TypeError("exclusive() needs the name of the lock: @store.exclusive('settlement')")
        if "{" not in name:
            lock_name(name)
        refuse_unknown(wishes, of="exclusive()")
        refuse_misspelt_skip(on_skip)
        tick, tz = wishes.pop("tick", None), wishes.pop("tz", None)
        refuse_vain_zone(tick, tz)
        others: Any = wishes
        fixed: Any = None if callable(tick) or has_fields(tick) else tick
        self.lock("check", tick=fixed, tz=None if fixed is None else tz, **others)  # it asks nobody

        def make(filled: str, due: Due | None) -> Lock:
            return self.lock(filled, tick=due, tz=None if due is None else tz, **others)

        return Exclusive(name, make, self._emit, tick=tick, on_skip=on_skip)

    def election(
        self,
        name: str,
        *,
        on_elected: Callable[..., object] | None = None,
        on_lost: Callable[..., object] | None = None,
        ttl: Duration = DEFAULT_TTL_S,
        margin: Duration | None = None,
        renew_every: Duration | None = None,
        call_timeout: Duration | None = None,
        retry_every: Duration | None = None,
        term_grace: Duration | None = None,
        kill: Duration | None = None,
    ) -> Election:
        """Stand for election in the background, until `Election.stop`.

        `on_elected(lease)` runs on a task of its own; `on_lost(lease)` when leadership ends. Both may also take
        no parameter. The timings are those of `lock`.
        """
        election = Election(
            name=lock_name(name),
            keeper=self._keeper(ttl, (margin, renew_every, call_timeout, retry_every, term_grace, kill)),
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

    def watch(self, grants: Collection[Grant]) -> Watched:
        """Ask which of these grants, of whatever holder, are gone for good. To be asked all the while.

        Where a store's clock can be stepped, it is not believed without a look at the renewals: see `WatchesSessions`.
        """
        if self._watching is not None:
            return self._watching.watch(grants)
        return Watched(self._store.missing(grants))

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

    def reset(self, name: str, *, reason: str) -> LeaseRecord:
        """Bring back the token of a lock that a wrong clock has put more than a day ahead; return the record from then.

        Fences do not believe such a token, so nobody who holds the lock can write until real time catches up. The lock
        must be free: it is taken for a moment. Raises `LockHeld`, or `ConfigurationError` if there is nothing to reset.

        **Not promised.** That the token is above all that were given: a fence whose own clock was ahead as well may
        have let one in, and refuses later ones. There the row has to be lowered by hand.
        """
        store = self._store
        if not isinstance(store, ResetsTokens):
            raise ConfigurationError("this store cannot reset tokens; use another name for the lock")
        with self.lock(name) as lease:
            pass
        token = store.reset(lease.name, lease.token, reason=reason)
        if token is None:
            raise ConfigurationError(
                f"the token of lock {name!r}, {lease.token}, is not more than a day ahead of the store's clock (or "
                "somebody has just taken the lock): nothing was reset"
            )
        self._emit(
            Event(
                What.TOKEN_RESET, lock=name, holder=self.holder, token=token, previous_token=lease.token, reason=reason
            )
        )
        return LeaseRecord(name, token)

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

    def _due(self, tick: Due | None, tz: str | None, *, at_most_once: bool) -> Tick | None:
        refuse_vain_zone(tick, tz)
        return None if tick is None else tick_of(tick, now_us=self._runtime.wall_us(), tz=tz, at_most_once=at_most_once)

    def _keeper(self, ttl: Duration, changes: Changes) -> Keeper:
        """Find the keeper of these timings; each way to write them is validated once, for this is a hot path."""
        key = (type(ttl), ttl, changes)  # the type, because True is 1 and yet no duration
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

    def _timings(self, ttl: Duration, changes: Changes) -> Timings:
        margin, renew_every, call_timeout, retry_every, term_grace, kill = changes
        timings = Timings.of(
            ttl,
            margin=margin,
            renew_every=renew_every,
            call_timeout=call_timeout,
            retry_every=retry_every,
            term_grace=term_grace,
            kill=kill,
        )
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
