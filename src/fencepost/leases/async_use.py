"""One use of a lock under ``async with``: runs the same code on a thread, and cancels the task on a loss.

**Promises.** If the task is cancelled while it waits, a lock acquired for it is released. A cancellation by this
module, because of a loss, leaves the block as `LeaseLost`. Any other is passed on, as with `asyncio.timeout`.
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
    """One use, from entering to leaving. `attempt` gets a callable that returns whether the lock is still wanted."""

    def __init__(self, runtime: Runtime, attempt: Attempt) -> None:
        self._runtime = runtime
        self._attempt = attempt
        self._is_wanted = True
        self._lease: Lease | None = None
        self._context: Token[Lease | None] | None = None
        self._cancelled: asyncio.Task[object] | None = None
        self._cancellations_before = 0

    async def enter(self) -> Lease:
        """Wait for the lock, and have the task cancelled if the lease is lost."""
        try:
            outcome = await in_thread(
                self._runtime, lambda: self._attempt(lambda: self._is_wanted), give_back=give_back
            )
        except BaseException:
            self._is_wanted = False  # the thread must not go on waiting for a task that was cancelled
            raise
        self._lease = lease = lease_or_raise(outcome)
        self._context = entered(lease)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        self._cancellations_before = task.cancelling() if task is not None else 0
        lease.on_lost(lambda _: _call_from_outside(loop, lambda: self._cancel(task)))
        return lease

    async def leave(self, kind: type[BaseException] | None) -> None:
        """Release the lease. Raises `LeaseLost` if the body outlived it."""
        lease, self._lease = self._lease, None
        if lease is None or self._context is None:
            return
        left(self._context)
        try:
            await in_thread(self._runtime, lambda: lease.release(done=kind is None))
        finally:  # also if another party cancels the task here: then only that cancellation must remain
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
        return  # the loop is closed, so there is no task to cancel


class _Handover(Generic[T]):
    """Passes a result from a thread to a task. If the task no longer waits, the result is given back once."""

    def __init__(self, runtime: Runtime, give_back: Callable[[T], None] | None) -> None:
        self._lock = runtime.lock()
        self._runtime = runtime
        self._give_back = give_back
        self._results: list[T] = []
        self._is_left = False

    def arrive(self, result: T) -> None:
        """Record the result. Called on the thread."""
        with self._lock:
            self._results.append(result)
            is_left = self._is_left
        if is_left:
            self._return()

    def leave(self, *, on_loop: bool) -> None:
        """Record that the task no longer takes the result."""
        with self._lock:
            self._is_left = True
            is_there = bool(self._results)
        if is_there and on_loop:  # giving back calls the store, and must not block the loop
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
    """Await `work` on a separate thread (not in the loop's shared pool, which user code may have filled).

    If the caller is cancelled before it has the result, or its loop is closed, the work continues and its result is
    passed to `give_back`.
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
        except RuntimeError:  # the loop was closed in the meantime
            handover.leave(on_loop=False)

    runtime.spawn("fencepost-async", run)
    try:
        return await done
    except BaseException:  # cancelled while waiting, or after the result arrived but before this task ran
        handover.leave(on_loop=True)
        raise
