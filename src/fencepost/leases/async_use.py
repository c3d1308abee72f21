"""One use of a lock under ``async with``: the same code on a thread, and the task cancelled when the lease is lost.

**Promises.** A lock that is got for a task which is cancelled meanwhile is given back. Our own cancellation, because of
a loss, comes out of the block as `LeaseLost`; anybody else's stays what it is, as with `asyncio.timeout`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextvars import Token
from typing import Generic, TypeVar

from fencepost.core.grants import AlreadyDone, Held
from fencepost.core.runtime import Runtime
from fencepost.errors import LeaseLost
from fencepost.leases.current import entered, left
from fencepost.leases.lease import Lease
from fencepost.leases.lock import give_back, lease_or_raise

T = TypeVar("T")
Attempt = Callable[[Callable[[], bool]], Lease | Held | AlreadyDone]


class AsyncUse:
    """From entering to leaving. `attempt` is told by a callable whether the lock is still wanted."""

    def __init__(self, runtime: Runtime, attempt: Attempt) -> None:
        self._runtime = runtime
        self._attempt = attempt
        self._is_wanted = True
        self._lease: Lease | None = None
        self._context: Token[Lease | None] | None = None
        self._cancelled: asyncio.Task[object] | None = None
        self._cancellations_before = 0

    async def enter(self) -> Lease:
        """Wait for the lock, and tie the task to it."""
        try:
            outcome = await in_thread(
                self._runtime, lambda: self._attempt(lambda: self._is_wanted), give_back=give_back
            )
        except BaseException:
            self._is_wanted = False  # so that the thread of a waiter that was cancelled does not wait on in its stead
            raise
        self._lease = lease = lease_or_raise(outcome)
        self._context = entered(lease)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        self._cancellations_before = task.cancelling() if task is not None else 0
        lease.on_lost(lambda _: _call_from_outside(loop, lambda: self._cancel(task)))
        return lease

    async def leave(self, kind: type[BaseException] | None) -> None:
        """Release, and tell a body that outlived its lease."""
        lease, self._lease = self._lease, None
        if lease is None or self._context is None:
            return
        left(self._context)
        try:
            await in_thread(self._runtime, lambda: lease.release(done=kind is None))
        finally:  # also when somebody else cancels us here: theirs must then be the only one that counts
            was_only_ours = self._take_back_cancellation()
        if lease.lost and (kind is None or (kind is asyncio.CancelledError and was_only_ours)):
            raise LeaseLost(lease.name, lease.token, lease.lost_reason or "unknown")

    def _cancel(self, task: asyncio.Task[object] | None) -> None:
        if task is not None and self._lease is not None:
            self._cancelled = task
            task.cancel(f"lease on {self._lease.name!r} is lost")

    def _take_back_cancellation(self) -> bool:
        task, self._cancelled = self._cancelled, None
        return task is not None and task.uncancel() <= self._cancellations_before


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
