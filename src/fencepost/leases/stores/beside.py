"""Blocking calls that know no timeout, or not one for all they do, made on a task of their own and given up in time.

Resolving a host's name may take as long as the resolver likes; a name with several addresses gets the time anew for
each of them; some drivers read a mute server's greeting for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

from fencepost.core.runtime import Runtime

T = TypeVar("T")


def within(runtime: Runtime, timeout_s: float, connect: Callable[[], T], close: Callable[[T], None]) -> T:
    """Call `connect` beside us; `TimeoutError` after `timeout_s`. A connection that comes too late is closed again."""
    attempt: _Attempt[T] = _Attempt(runtime, connect, close)
    begin(runtime, "fencepost-connect", attempt.run)
    return attempt.result(timeout_s)


def begin(runtime: Runtime, name: str, work: Callable[[], None]) -> None:
    """Begin a task. When the interpreter is about to end, no more can be begun: then do the work at once.

    So a process that ends still gives back what it holds.
    """
    try:
        runtime.spawn(name, work)
    except RuntimeError:
        work()


class _Attempt(Generic[T]):
    def __init__(self, runtime: Runtime, connect: Callable[[], T], close: Callable[[T], None]) -> None:
        self._connect = connect
        self._close = close
        self._lock = runtime.lock()
        self._done = runtime.event()
        self._outcome: list[T] = []
        self._error: Exception | None = None
        self._abandoned = False

    def run(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:  # noqa: BLE001 - handed to the caller, in its own thread
            self._error = error
        else:
            with self._lock:
                self._outcome.append(connection)
                if self._abandoned:
                    self._close(connection)
        self._done.set()

    def result(self, timeout_s: float) -> T:
        if not self._done.wait(max(timeout_s, 0.0)):
            with self._lock:
                self._abandoned = not self._done.is_set() and not self._outcome
            if self._abandoned:
                raise TimeoutError
        if self._error is not None:
            _raise_as_it_was(self._error)
        return self._outcome[0]


def _raise_as_it_was(error: Exception) -> NoReturn:
    """Raise with the context it had in its own thread: that may tell what it means, and ours does not."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
