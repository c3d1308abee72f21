"""Runs blocking calls without a suitable timeout on a separate task, and stops waiting for them in time.

Resolving a host name may take as long as the resolver allows. For a name with several addresses, the timeout applies to
each address. Some drivers wait for ever for the greeting of a server that does not reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

from fencepost.core.runtime import Runtime

T = TypeVar("T")


def within(runtime: Runtime, timeout_s: float, connect: Callable[[], T], close: Callable[[T], None]) -> T:
    """Call `connect` on another task; raise `TimeoutError` after `timeout_s`. A late connection is closed again."""
    attempt: _Attempt[T] = _Attempt(runtime, connect, close)
    begin(runtime, "fencepost-connect", attempt.run)
    return attempt.result(timeout_s)


def begin(runtime: Runtime, name: str, work: Callable[[], None]) -> None:
    """Start a task. If the interpreter is shutting down, no task can be started: then do the work directly.

    So a process that ends still releases its locks.
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
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
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
    """Raise with the context it had in its own thread, which may be needed to classify the error."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
