"""Election: a lease with callbacks. One of several candidates leads; the others stand by.

::

    STANDING BY ──acquires lease─▶ LEADING ──resign()──▶ on_lost, release ──▶ STANDING BACK ──▶ STANDING BY
        ▲                            │
        └──────── on_lost ◀── lost ──┘

**Promises.** `on_elected` is called after the lease was acquired, on a separate task, so it may do all the work of the
leader. `on_lost` is called once for each `on_elected`, when leadership ends for any reason. On `resign` it is called
*before* the lease is released, so it can stop the work before another leader begins. After a resignation the candidate
waits for a ttl, so that others go first.

**Not promised.** That two processes never both believe that they lead: a paused process believes it until it resumes.
Use `lease.token` with a fence. An election avoids duplicate work; correctness must not depend on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Self

from fencepost.core.events import Event, What
from fencepost.core.grants import Held
from fencepost.core.runtime import Flag as WaitableEvent
from fencepost.core.runtime import Runtime
from fencepost.leases.keeper import Keeper
from fencepost.leases.lease import Lease
from fencepost.leases.lock import pause_until_free
from fencepost.leases.store import LeaseStore

Callback = Callable[..., object]
_SHORTEST_PAUSE_S = 0.01  # between two looks at whether the lease has been released: short to a caller, no busy loop
_campaigning: ContextVar[Election | None] = ContextVar("fencepost_campaigning", default=None)


class Election:
    """One candidate in one election. Runs in the background from its creation until `stop`."""

    def __init__(
        self,
        *,
        name: str,
        keeper: Keeper,
        store: LeaseStore,
        runtime: Runtime,
        emit: Callable[[Event], None],
        on_elected: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        self.name = name
        self._keeper = keeper
        self._store = store
        self._runtime = runtime
        self._emit = emit
        self._on_elected = _taking_a_lease(on_elected, "on_elected")
        self._on_lost = _taking_a_lease(on_lost, "on_lost")
        self._lease: Lease | None = None
        self._known: tuple[str | None, int] | None = None
        self._failures = 0
        self._lock = runtime.lock()
        self._is_stopping = False
        self._must_resign: str | None = None
        self._news = runtime.event()
        self._stopped = runtime.event()
        self._task = runtime.spawn(f"fencepost-election-{name}", self._campaign)

    @property
    def is_leader(self) -> bool:
        """Whether this candidate may act as leader now."""
        lease = self._lease
        return lease is not None and not lease.lost

    @property
    def lease(self) -> Lease | None:
        """The lease while leading, else None."""
        return self._lease if self.is_leader else None

    @property
    def leader(self) -> str | None:
        """The leader that this candidate last saw at the store."""
        return self._known[0] if self._known else None

    def resign(self, reason: str = "resigned") -> bool:
        """Hand over now: call `on_lost`, then release the lease. Returns False if this candidate does not lead.

        Returns when another candidate can lead. This candidate stands by again after a ttl.
        """
        if not self.is_leader:
            return False
        lease = self._lease
        self._must_resign = reason
        self._news.set()
        while self._lease is lease and self._runs_beside_caller():
            self._task.join(_SHORTEST_PAUSE_S)
        return True

    def stop(self) -> None:
        """Leave the election, handing over if leading. Returns when this candidate can no longer be elected."""
        with self._lock:  # an election at this moment either finishes first and is seen below, or sees the flag
            self._is_stopping = True
        self._news.set()
        self._stopped.set()
        while self._lease is not None and self._runs_beside_caller():
            self._task.join(_SHORTEST_PAUSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _runs_beside_caller(self) -> bool:
        """Whether the background task runs, and is not the caller: a callback that it calls must not wait for it."""
        return _campaigning.get() is not self and self._task.is_alive()

    def _campaign(self) -> None:
        _campaigning.set(self)
        while not self._is_stopping:
            try:
                outcome = self._keeper.acquire(self.name)
                self._failures = 0
            except Exception as error:  # noqa: BLE001 - a candidate must survive any error of a driver
                self._back_off(error)
                continue
            if isinstance(outcome, Lease):
                self._lead(outcome)
            elif isinstance(outcome, Held):
                self._stand_by(outcome)

    def _stand_by(self, held: Held) -> None:
        self._note_leader(held.holder, held.token)
        if self._is_stopping:
            return
        try:
            self._store.wait_change(held, pause_until_free(held, self._store.capabilities.longest_watch_s))
        except Exception as error:  # noqa: BLE001 - as above
            self._back_off(error)

    def _lead(self, lease: Lease) -> None:
        if not self._accept(lease):
            lease.give_back()
            return
        lease.on_lost(lambda _: self._news.set())
        self._note_leader(lease.holder, lease.token)
        self._report(What.ELECTED, lease)
        self._begin_work(lease)
        while not (lease.lost or self._is_asked_to_go()):
            self._news.wait(1.0)
            self._news.clear()
        self._end_of_leadership(lease)

    def _is_asked_to_go(self) -> bool:
        return self._is_stopping or self._must_resign is not None

    def _accept(self, lease: Lease) -> bool:
        """Become the leader. Returns False if `stop` was called during the acquisition."""
        with self._lock:
            if self._is_stopping:
                return False
            self._must_resign = None
            self._news.clear()
            self._lease = lease
            return True

    def _begin_work(self, lease: Lease) -> None:
        """Start `on_elected` on a separate task. Wait until it has begun, so that `on_lost` is never called first."""
        begun = self._runtime.event()
        try:
            self._runtime.spawn(f"fencepost-leader-{self.name}", lambda: self._work(lease, begun))
        except RuntimeError as error:  # no thread can be started: let another candidate lead
            self._must_resign = f"on_elected could not be started: {error}"
            return
        begun.wait(self._keeper.timings.renew_every_s)

    def _work(self, lease: Lease, begun: WaitableEvent) -> None:
        begun.set()
        try:
            self._on_elected(lease)
        except BaseException as error:  # noqa: BLE001 - a leader that fails or exits must resign
            if self._lease is lease:
                self._must_resign = f"on_elected raised {error!r}"
                self._news.set()

    def _end_of_leadership(self, lease: Lease) -> None:
        try:
            self._on_lost(lease)
        except BaseException as error:  # noqa: BLE001 - the hand-over must continue
            self._emit(Event(What.OBSERVER_FAILED, lock=self.name, reason=f"on_lost raised {error!r}"))
        was_lost = lease.lost
        if not was_lost:
            reason = self._must_resign or "stopped"
            lease.release()
            self._report(What.RESIGNED, lease, reason=reason)
        self._lease = None
        if not was_lost and not self._is_stopping:
            self._stopped.wait(self._keeper.timings.ttl_s)

    def _note_leader(self, holder: str | None, token: int) -> None:
        known = self._known
        if holder is None or (known is not None and known[1] == token):
            return
        self._known = (holder, token)
        self._emit(
            Event(
                What.LEADER_CHANGED,
                lock=self.name,
                holder=holder,
                token=token,
                previous_holder=known[0] if known else None,
                previous_token=known[1] if known else None,
            )
        )

    def _back_off(self, error: Exception) -> None:
        """Wait longer after each failure, up to the renewal interval, with jitter so that candidates spread out."""
        self._failures += 1
        self._emit(Event(What.STORE_WARNING, lock=self.name, reason=str(error) or repr(error)))
        longest_s = max(self._keeper.timings.renew_every_s, 0.2)
        pause_s = min(0.1 * 2 ** min(self._failures, 10), longest_s)
        self._stopped.wait(pause_s * (0.5 + 0.5 * self._runtime.random()))

    def _report(self, what: What, lease: Lease, *, reason: str | None = None) -> None:
        self._emit(
            Event(what, lock=self.name, holder=lease.holder, token=lease.token, grant_id=lease.grant_id, reason=reason)
        )


def _taking_a_lease(callback: Callback | None, what: str) -> Callable[[Lease], object]:
    """Wrap a callback so that it can be called with the lease, even if it takes no parameter."""
    if callback is None:
        return lambda _: None
    if inspect.iscoroutinefunction(callback):
        raise TypeError(f"{what} runs on a thread and cannot be async; start your coroutine from a plain function")
    try:
        inspect.signature(callback).bind(None)
    except TypeError:
        return lambda _: callback()
    except ValueError:  # a built-in without a signature
        pass
    return callback
