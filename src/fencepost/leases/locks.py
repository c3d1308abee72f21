"""A connected store, from which users get locks, exclusive functions and elections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any, Literal, Never, Self, TypeVar, Unpack, overload

from fencepost.core.auto_tick import tick_of
from fencepost.core.duration import Duration, seconds, spelled
from fencepost.core.events import Event, Observer, What
from fencepost.core.grants import Grant, LeaseRecord, PastGrant, SessionSight
from fencepost.core.names import NODE_LEASE, holder_name, lock_name
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
    ShowsLeases,
    Watched,
    WatchesSessions,
)

S = TypeVar("S")

Changes = tuple[Duration | None, ...]  # the timings except the ttl, in the order of `Timings`


class Locks:
    """Locks on one store. Created by `fencepost.locks.connect`; can be shared between threads.

    In a forked child it starts without leases: those taken before the fork belong to the parent.
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
        self._watching = store if isinstance(store, WatchesSessions) else None  # kept, because the check is slow
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
        """Connect to the store, or raise. Emits the store's warnings as events."""
        for warning in self._store.start():
            self._emit(Event(What.STORE_WARNING, reason=warning))

    def noted(self, ledger: LedgerMark) -> tuple[str, LedgerMark] | None:
        """Record the ledger's progress in a separate store; see `KnowsItsLedger`. None if the ledger is the store."""
        return self._store.noted(ledger) if isinstance(self._store, KnowsItsLedger) else None

    def observe(self, observer: Observer) -> None:
        """Add an observer, which is called for every event from now on."""
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
        """Return a lock for use in ``with`` or ``async with``; entering it raises `LockHeld` or `TickDone`.

        Args:
            name: the name of the lock; printable, up to 200 characters.
            ttl: how long the store keeps the lock after the last renewal. The lock is renewed in the background, so
                the ttl does not limit how long the work takes, only how long others wait after a crash.
            wait: how long to wait for a lock that is held.
            at_least: how long the lock cannot be taken again, counted from when it was acquired, even if the work
                ends sooner. Use it for jobs that are shorter than the difference between two machines' clocks.
            tick: the due time this work is for. A due time at or before the last one done raises `TickDone`.
                ``"auto:CRON"`` means the latest due time of a cron expression, by this machine's clock.
            tz: the time zone of ``auto:CRON``; UTC by default.
            at_most_once: mark the tick as done when the lock is taken, not when the work succeeds.
            floor: the smallest token to accept, for a holder that was refused by a fence with a higher token.
            margin: how long before the lock expires at the store the holder stops trusting it. By default, this and
                the following timings are scaled from the ttl. They are validated together; see docs/timings.md.
            renew_every: how often the lock is renewed.
            call_timeout: how long a renewal may take.
            retry_every: how long to wait before a renewal without a reply is retried.
            term_grace: how long a program may take to end after SIGTERM.
            kill: how long it takes to kill a program that did not end.
        """
        due = None if tick is None and tz is None else self._due(tick, tz, at_most_once=at_most_once)
        wait_s = seconds(wait, what="wait") if wait != 0 else 0.0
        at_least_s = seconds(at_least, what="at_least") if at_least != 0 else 0.0
        wish = Wish(lock_name(name), wait_s, at_least_s, due, floor)
        keeper = self._keeper(ttl, (margin, renew_every, call_timeout, retry_every, term_grace, kill))
        return Lock(wish=wish, keeper=keeper, store=self._store, runtime=self._runtime, emit=self._emit)

    def try_lock(self, name: str, **wishes: Unpack[LockWishes]) -> Lease | None:
        """Return the lease, or None if the lock is held or the tick is done. Takes the same options as `lock`."""
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
        """Decorate a function to run only while it holds the lock; ``{parameter}`` in the name is replaced.

        Takes the same options as `lock`; any other raises `TypeError`. ``tick`` may also be ``"{parameter}"``, or a
        function of the call's arguments that returns a due time. If your own scheduler calls the function on several
        machines, ``tick="auto:CRON"`` lets each due time run once. Where there is no due time, use ``at_least`` to
        keep the lock closed.

        If the lock is held or the tick is done, the call returns a false `Skipped` with the reason
        (``on_skip="return"``), raises `LockHeld` or `TickDone` (``"raise"``), or returns the value of `on_skip`.
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
        self.lock("check", tick=fixed, tz=None if fixed is None else tz, **others)  # validates without a store call

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
        """Take part in an election in the background, until `Election.stop`.

        `on_elected(lease)` is called on a separate task when this candidate is elected, and `on_lost(lease)` when its
        leadership ends. Both may also take no parameter. The timings are those of `lock`.
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
        """Return the store's record of a lock, or None if it was never taken."""
        return self._store.read(lock_name(name))

    def records(self) -> Iterator[LeaseRecord]:
        """Return the store's records of all locks."""
        return self._store.records()

    def page(self, *, after: str = "", limit: int = 100, is_held: bool = False) -> list[LeaseRecord]:
        """Return some of the store's records, by name, from after the name `after` on; not the sessions of nodes."""
        if isinstance(self._store, ShowsLeases):
            return self._store.page(after=after, limit=limit, is_held=is_held)
        found = (each for each in self._store.records() if each.name > after and not each.name.startswith(NODE_LEASE))
        return list(islice((each for each in found if each.is_held or not is_held), limit))

    def sessions(self, grants: Collection[Grant]) -> dict[str, SessionSight] | None:
        """Return how the sessions look that have these grants, by grant id; None if this store cannot show it."""
        return self._store.sessions(grants) if isinstance(self._store, ShowsLeases) else None

    def history(self, name: str | None = None, *, limit: int = 100) -> list[PastGrant] | None:
        """Return ended grants, newest first, or None if this store keeps no history."""
        if isinstance(self._store, KeepsHistory):
            return self._store.history(lock_name(name) if name is not None else None, limit=limit)
        return None

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Return the ids of those grants, of any holder, that are no longer current at the store."""
        return self._store.missing(grants)

    def watch(self, grants: Collection[Grant]) -> Watched:
        """Return which of these grants, of any holder, have ended for good. Must be called regularly.

        If the store's clock can be stepped, an expired session must also have been seen without renewals: see
        `WatchesSessions`.
        """
        if self._watching is not None:
            return self._watching.watch(grants)
        return Watched(self._store.missing(grants))

    def revoke(self, name: str, *, grant_id: str | None = None) -> LeaseRecord | None:
        """Take a lock away from its holder; return the record of the hold, or None if the lock was free.

        The holder notices at its next renewal or check; until then only a fence stops its writes. With `grant_id`, only
        this grant is ended: None if it has ended already.
        """
        record = self._store.read(lock_name(name))
        if record is None or not record.is_held or grant_id not in (None, record.grant_id):
            return None
        if not self._store.revoke(record):
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
        """Reset the token of a lock that a wrong clock has put more than a day ahead; return the new record.

        Fences refuse such a token, so no holder of the lock can write until real time catches up. The lock must be
        free: it is taken for a moment. Raises `LockHeld`, or `ConfigurationError` if there is nothing to reset.

        **Not promised.** That the new token is higher than all earlier ones. A fence whose own clock was also ahead may
        have accepted an earlier, higher token; it then refuses the new one until its row is lowered by hand.
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
                "another holder has just taken the lock): nothing was reset"
            )
        self._emit(
            Event(
                What.TOKEN_RESET, lock=name, holder=self.holder, token=token, previous_token=lease.token, reason=reason
            )
        )
        return LeaseRecord(name, token)

    def close(self) -> None:
        """Stop elections, release every lock, and close the connections. After that, no locks can be taken."""
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
        """Notify the observers. A bound method: leases keep it, and so keep this object alive for fork and exit."""
        self._observers(event)

    def _new_holder(self) -> str:
        runtime = self._runtime
        return holder_name(host=self._label or runtime.host(), pid=runtime.process_id(), start_id=runtime.new_id())

    def _due(self, tick: Due | None, tz: str | None, *, at_most_once: bool) -> Tick | None:
        refuse_vain_zone(tick, tz)
        return None if tick is None else tick_of(tick, now_us=self._runtime.wall_us(), tz=tz, at_most_once=at_most_once)

    def _keeper(self, ttl: Duration, changes: Changes) -> Keeper:
        """Return the keeper for these timings. Each spelling of them is validated once, because this is a hot path."""
        key = (type(ttl), ttl, changes)  # the type, because True == 1, but is not a valid duration
        try:
            return self._known[key]
        except (KeyError, TypeError):  # TypeError: not hashable, so not a duration; the validation below reports it
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
