"""A lock to be entered: ``with store.lock("name") as lease`` and ``async with``.

The asynchronous face is the same code on a thread of its own; an event loop that user code blocks cannot
starve a renewal. Inside ``async with`` the task is cancelled when the lease is lost, and the block then
raises `LeaseLost`; a thread cannot be cancelled, so under plain ``with`` the loss shows in ``lease.lost`` and,
at the end of the block, as `LeaseLost`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextvars import Token
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

from fencepost.core.events import Event, What
from fencepost.core.grants import AlreadyDone, Held
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick, spelled_us
from fencepost.errors import LeaseLost, LockHeld, StoreUnavailable, TickDone
from fencepost.leases.current import entered, left
from fencepost.leases.keeper import Keeper
from fencepost.leases.lease import Lease
from fencepost.leases.store import LeaseStore

T = TypeVar("T")
_LONGEST_WATCH_S = 5.0  # a watch that broke silently costs no more than this
_SHORTEST_PAUSE_S = 0.01


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller wants of a lock."""

    name: str
    wait_s: float = 0.0
    at_least_s: float = 0.0
    tick: Tick | None = None
    floor: int = 0


class Lock:
    """One use of a lock: enter it once. Make another with ``store.lock`` for the next use."""

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
        self._cancelled: asyncio.Task[object] | None = None
        self._cancellations_before = 0
        self._context: Token[Lease | None] | None = None

    def attempt(self, is_wanted: Callable[[], bool] = lambda: True) -> Lease | Held | AlreadyDone:
        """Ask for the lock, wait for it as long as wished and wanted, and return what came of it."""
        outcome = self._attempt(is_wanted)
        try:
            self._tell_outcome(outcome)
        except BaseException:
            _give_back(outcome)
            raise
        return outcome

    def acquire(self) -> Lease:
        """Return the lease, or raise `LockHeld` or `TickDone`."""
        outcome = self.attempt()
        try:
            return _lease_or_raise(outcome)
        except BaseException:  # interrupted: nobody will have it
            _give_back(outcome)
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
        except BaseException:  # it may have been interrupted before it began
            lease.release(done=False)
            raise

    async def __aenter__(self) -> Lease:
        self._begin_use()
        is_wanted = True
        try:
            outcome = await in_thread(self._runtime, lambda: self.attempt(lambda: is_wanted), give_back=_give_back)
            self._lease = lease = _lease_or_raise(outcome)
        except BaseException:
            is_wanted = False  # so that the thread of a waiter that was cancelled does not wait on in its stead
            self._give_up_use()
            raise
        self._context = entered(lease)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        self._cancelled, self._cancellations_before = None, task.cancelling() if task is not None else 0
        lease.on_lost(lambda lost: _call_from_outside(loop, lambda: self._cancel(task, lost)))
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = self._end_use()
        if lease is None or self._context is None:
            return
        left(self._context)
        try:
            await in_thread(self._runtime, lambda: lease.release(done=kind is None))
        finally:  # also when somebody else cancels us here: theirs must then be the only one that counts
            was_only_ours = self._take_back_cancellation()
        if lease.lost and (kind is None or (kind is asyncio.CancelledError and was_only_ours)):
            raise LeaseLost(lease.name, lease.token, lease.lost_reason or "unknown")

    def _cancel(self, task: asyncio.Task[object] | None, lease: Lease) -> None:
        if task is not None and self._lease is lease:
            self._cancelled = task
            task.cancel(f"lease on {self.name!r} is lost")

    def _take_back_cancellation(self) -> bool:
        """As `asyncio.timeout` does: our own cancellation becomes an error, anybody else's stays one."""
        task, self._cancelled = self._cancelled, None
        return task is not None and task.uncancel() <= self._cancellations_before

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
        pause_s = min(left_s, pause_until_free(held))
        try:
            self._store.wait_change(held, max(pause_s, 0.0))
        except StoreUnavailable:
            self._runtime.sleep(min(pause_s, 0.5))

    def _begin_use(self) -> None:
        """Refuse a second use, also while the first still waits: one of them would release the lease of the other."""
        with self._uses:
            if self._is_in_use:
                raise RuntimeError(f"this lock {self.name!r} is entered already; make one per use with store.lock(…)")
            self._is_in_use = True

    def _end_use(self) -> Lease | None:
        lease, self._lease = self._lease, None
        self._is_in_use = False
        return lease

    def _give_up_use(self) -> None:
        """End a use that came to nothing, also if it was interrupted after the lease was got."""
        if (lease := self._end_use()) is not None:
            lease.give_back()

    def _tell_outcome(self, outcome: Lease | Held | AlreadyDone) -> None:
        if isinstance(outcome, Lease):
            self._tell(What.ACQUIRED, outcome.holder, outcome.token, grant_id=outcome.grant_id)
        elif isinstance(outcome, Held):
            self._tell(What.REFUSED, outcome.holder, outcome.token, reason="held")
        else:
            self._tell(What.ALREADY_DONE, None, None, reason=f"last done: {spelled_us(outcome.last_tick_us)}")

    def _tell(
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


def pause_until_free(held: Held) -> float:
    """Return for how long to watch before asking again; a store that says "free now" is asked again at once."""
    free_in_s = _LONGEST_WATCH_S if held.free_in_s is None else held.free_in_s
    return min(_LONGEST_WATCH_S, max(free_in_s, _SHORTEST_PAUSE_S))


def _lease_or_raise(outcome: Lease | Held | AlreadyDone) -> Lease:
    match outcome:
        case Held():
            raise LockHeld(outcome.name, outcome.holder, outcome.token)
        case AlreadyDone():
            raise TickDone(outcome.name, str(outcome.tick), spelled_us(outcome.last_tick_us))
    return outcome


def _give_back(outcome: object) -> None:
    if isinstance(outcome, Lease):
        outcome.give_back()


def _call_from_outside(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return  # the loop is closed: nothing runs there any more


class _Handover(Generic[T]):
    """A result on its way from a thread to a task that may be gone when it arrives: it is taken, or given back once."""

    def __init__(self, runtime: Runtime, give_back: Callable[[T], None] | None) -> None:
        self._lock = runtime.lock()
        self._runtime = runtime
        self._give_back = give_back
        self._results: list[T] = []
        self._is_left = False

    def arrive(self, result: T) -> None:
        """Note, on the thread, that the result is there."""
        with self._lock:
            self._results.append(result)
            is_left = self._is_left
        if is_left:
            self._return()

    def leave(self, *, on_loop: bool) -> None:
        """Note that nobody takes the result any more."""
        with self._lock:
            self._is_left = True
            is_there = bool(self._results)
        if is_there and on_loop:  # giving back asks the store, which a loop must not wait for
            self._runtime.spawn("fencepost-give-back", self._return)
        elif is_there:
            self._return()

    def _return(self) -> None:
        with self._lock:
            results, self._results = self._results, []
        for result in results:
            if self._give_back is not None:
                self._give_back(result)


async def in_thread(runtime: Runtime, work: Callable[[], T], *, give_back: Callable[[T], None] | None = None) -> T:
    """Await `work` on a thread of its own (never the loop's shared pool, which user code may have filled).

    If the caller is cancelled before it has the result, or its loop is closed, the work goes on and `give_back` gets
    what comes of it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    handover = _Handover(runtime, give_back)

    def deliver(settle: Callable[[], None]) -> None:
        if not done.done():
            settle()

    def run() -> None:
        try:
            result = work()
            handover.arrive(result)
            settle: Callable[[], None] = functools.partial(done.set_result, result)
        except BaseException as raised:  # noqa: BLE001 - carried over to the awaiting task
            settle = functools.partial(done.set_exception, raised)
        try:
            loop.call_soon_threadsafe(deliver, settle)
        except RuntimeError:  # the loop was closed while we worked
            handover.leave(on_loop=False)

    runtime.spawn("fencepost-async", run)
    try:
        return await done
    except BaseException:  # cancelled while waiting, or in the moment between the result and our turn
        handover.leave(on_loop=True)
        raise
