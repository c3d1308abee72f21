"""A lock, for use in ``with store.lock("name") as lease`` and ``async with``.

The asynchronous interface runs the same code on a separate thread, so an event loop that user code blocks cannot delay
a renewal. Inside ``async with`` the task is cancelled when the lease is lost, and the block raises `LeaseLost`. A
thread cannot be cancelled, so inside plain ``with`` the loss shows in ``lease.lost``, and the block raises `LeaseLost`
at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from fencepost.core.events import Event, What
from fencepost.core.grants import AlreadyDone, Held
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick, spelled_us
from fencepost.errors import LockHeld, StoreUnavailable, TickDone
from fencepost.leases.keeper import Keeper
from fencepost.leases.lease import Lease
from fencepost.leases.store import LeaseStore

if TYPE_CHECKING:
    from fencepost.leases.async_use import AsyncUse

_SHORTEST_PAUSE_S = 0.01  # so that a store that keeps answering "free now" is not asked in a busy loop


@dataclass(frozen=True, slots=True)
class Wish:
    """The options with which a caller asks for a lock."""

    name: str
    wait_s: float = 0.0
    at_least_s: float = 0.0
    tick: Tick | None = None
    floor: int = 0


class Lock:
    """One use of a lock: enter it once. Call ``store.lock`` again for the next use."""

    def __init__(
        self, *, wish: Wish, keeper: Keeper, store: LeaseStore, runtime: Runtime, emit: Callable[[Event], None]
    ) -> None:
        self.name = wish.name
        self._wish = wish
        self._keeper = keeper
        self._store = store
        self._runtime = runtime
        self._emit = emit
        self._lease: Lease | None = None
        self._uses = runtime.lock()
        self._is_in_use = False
        self._async_use: AsyncUse | None = None

    def attempt(self, is_wanted: Callable[[], bool] = lambda: True) -> Lease | Held | AlreadyDone:
        """Ask for the lock and return the outcome. Waits at most `wait_s`, and only while `is_wanted()` is true."""
        outcome = self._attempt(is_wanted)
        try:
            self._report_outcome(outcome)
        except BaseException:
            give_back(outcome)
            raise
        return outcome

    def acquire(self) -> Lease:
        """Return the lease, or raise `LockHeld` or `TickDone`."""
        outcome = self.attempt()
        try:
            return lease_or_raise(outcome)
        except BaseException:  # interrupted: the caller does not get the lease
            give_back(outcome)
            raise

    def __enter__(self) -> Lease:
        self._begin_use()
        try:
            self._lease = lease = self.acquire()
            return lease.__enter__()
        except BaseException:
            self._give_up_use()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease, self._lease = self._lease, None
        self._is_in_use = False
        if lease is None:
            return
        try:
            lease.__exit__(kind, error, trace)
        except BaseException:  # __exit__ may have been interrupted before it released the lease
            lease.release(done=False)
            raise

    async def __aenter__(self) -> Lease:
        from fencepost.leases.async_use import AsyncUse  # noqa: PLC0415 - importing asyncio takes 30 ms

        self._begin_use()
        use = AsyncUse(self._runtime, self.attempt)
        try:
            self._lease = lease = await use.enter()
        except BaseException:
            self._give_up_use()
            raise
        self._async_use = use
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        use, self._async_use = self._async_use, None
        self._end_use()
        if use is not None:
            await use.leave(kind)

    def _attempt(self, is_wanted: Callable[[], bool]) -> Lease | Held | AlreadyDone:
        wish, now = self._wish, self._runtime.monotonic
        give_up_at = now() + wish.wait_s
        while True:
            try:
                outcome = self._keeper.acquire(wish.name, tick=wish.tick, floor=wish.floor, at_least_s=wish.at_least_s)
            except StoreUnavailable:
                if now() + _SHORTEST_PAUSE_S >= give_up_at or not is_wanted():
                    raise
                self._runtime.sleep(min(0.2 + 0.3 * self._runtime.random(), max(give_up_at - now(), 0.0)))
                continue
            if not isinstance(outcome, Held) or now() >= give_up_at:
                return outcome
            self._wait(outcome, give_up_at - now())
            if not is_wanted():
                return outcome

    def _wait(self, held: Held, left_s: float) -> None:
        pause_s = min(left_s, pause_until_free(held, self._store.capabilities.longest_watch_s))
        try:
            self._store.wait_change(held, max(pause_s, 0.0))
        except StoreUnavailable:
            self._runtime.sleep(min(pause_s, 0.5))

    def _begin_use(self) -> None:
        """Refuse a second use, also while the first one is waiting: one use would release the lease of the other."""
        with self._uses:
            if self._is_in_use:
                raise RuntimeError(f"this lock {self.name!r} is already in use; call store.lock(…) for each use")
            self._is_in_use = True

    def _end_use(self) -> Lease | None:
        lease, self._lease = self._lease, None
        self._is_in_use = False
        return lease

    def _give_up_use(self) -> None:
        """End a use that failed; release the lease if it was interrupted after the acquisition."""
        if (lease := self._end_use()) is not None:
            lease.give_back()

    def _report_outcome(self, outcome: Lease | Held | AlreadyDone) -> None:
        if isinstance(outcome, Lease):
            self._report(What.ACQUIRED, outcome.holder, outcome.token, grant_id=outcome.grant_id)
        elif isinstance(outcome, Held):
            reason = "kept closed (at_least)" if outcome.is_kept else "held"
            self._report(What.REFUSED, outcome.holder, outcome.token, reason=reason)
        else:
            self._report(What.ALREADY_DONE, None, None, reason=f"last done: {spelled_us(outcome.last_tick_us)}")

    def _report(
        self,
        what: What,
        holder: str | None,
        token: int | None,
        *,
        grant_id: str | None = None,
        reason: str | None = None,
    ) -> None:
        tick = self._wish.tick
        self._emit(
            Event(
                what,
                lock=self.name,
                holder=holder,
                token=token,
                grant_id=grant_id,
                tick_us=tick.at_us if tick else None,
                reason=reason,
            )
        )


def pause_until_free(held: Held, longest_s: float) -> float:
    """Return how long to watch before asking again; if the store reports "free now", only the shortest pause."""
    free_in_s = longest_s if held.free_in_s is None else held.free_in_s
    return min(longest_s, max(free_in_s, _SHORTEST_PAUSE_S))


def lease_or_raise(outcome: Lease | Held | AlreadyDone) -> Lease:
    """Return the lease, or raise `LockHeld` or `TickDone`."""
    match outcome:
        case Held():
            closed_for_s = (outcome.free_in_s or 0.0) if outcome.is_kept else None
            raise LockHeld(outcome.name, outcome.holder, outcome.token, closed_for_s=closed_for_s)
        case AlreadyDone():
            raise TickDone(outcome.name, str(outcome.tick), spelled_us(outcome.last_tick_us))
    return outcome


def give_back(outcome: object) -> None:
    """Release the lease, if the outcome is one, because its caller no longer waits for it."""
    if isinstance(outcome, Lease):
        outcome.give_back()
