"""Calls to the database: one deadline each, repeated where that is safe, and ended by values or `StoreUnavailable`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from fencepost.core.duration import spelled
from fencepost.core.runtime import Runtime
from fencepost.errors import StoreUnavailable
from fencepost.leases.stores.sql.backend import Backend, CallTimedOut, Connection, Trouble
from fencepost.leases.stores.sql.pool import Pool

T = TypeVar("T")

_CONFLICTS_BORNE = 5


class Calls:
    """Runs pieces of work on pooled connections.

    The work must be such that doing it twice is as good as once. It is done again, once, when a connection that had
    been used before turns out broken (the server was restarted, a firewall dropped it), and a few times after a
    deadlock or serialization failure. It is not done again after a timeout.
    """

    def __init__(self, runtime: Runtime, backend: Backend, *, limit: int) -> None:
        self._runtime = runtime
        self._backend = backend
        self._clock = runtime.monotonic
        self.expected: tuple[type[Exception], ...] = (CallTimedOut, OSError, *backend.driver_errors)
        self.pool = Pool(runtime, backend.connect, limit=limit)

    def run(self, timeout_s: float, work: Callable[[Connection], T]) -> T:
        """Do `work` within `timeout_s`; any failure is `StoreUnavailable`."""
        try:
            return self.run_raw(timeout_s, work)
        except self.expected as error:
            raise self.unavailable(error, timeout_s) from error

    def run_raw(self, timeout_s: float, work: Callable[[Connection], T]) -> T:
        """Do `work` within `timeout_s`, and let the driver's own errors through."""
        deadline = self._clock() + timeout_s
        conflicts, repeats = 0, False
        while True:
            connection, reused = self.pool.take(deadline)
            connection.deadline = deadline
            connection.repeats = repeats
            try:
                connection.begin_call()
                result = work(connection)
            except BaseException as error:
                match self._trouble(error):
                    case Trouble.BROKEN if reused and not repeats:
                        repeats = True
                        self.pool.drop(connection)
                        self.pool.drop_idle()
                    case Trouble.CONFLICT if conflicts < _CONFLICTS_BORNE and self._clock() < deadline:
                        conflicts += 1
                        self._roll_back(connection)
                    case _:
                        self.pool.drop(connection)
                        raise
            else:
                self.pool.give(connection)
                return result

    def is_broken(self, error: Exception) -> bool:
        """Whether the connection is gone, as against slow or refusing."""
        return self._trouble(error) is Trouble.BROKEN

    def _trouble(self, error: BaseException) -> Trouble:
        if isinstance(error, CallTimedOut):
            return Trouble.LATE
        return self._backend.trouble(error) if isinstance(error, self._backend.driver_errors) else Trouble.OTHER

    def _roll_back(self, connection: Connection) -> None:
        """Make the connection fit for another try, by replacing it if need be."""
        try:
            connection.rollback()
        except Exception:  # noqa: BLE001 - whatever it is, another connection will do
            self.pool.drop(connection)
        else:
            self.pool.give(connection)

    def unavailable(self, error: Exception, timeout_s: float) -> StoreUnavailable:
        """Put a failure into words that tell an operator enough, and nobody a secret."""
        if isinstance(error, CallTimedOut) or self._trouble(error) is Trouble.LATE:
            return StoreUnavailable(f"{self._backend.product} did not answer within {spelled(round(timeout_s, 3))}")
        return StoreUnavailable(f"{self._backend.product}: {first_line(error)}")


def first_line(error: BaseException) -> str:
    """Return the first line of a driver's message, which tells enough; the rest may show the statement."""
    text = str(error.args[-1] if error.args else error).strip()
    with suppress(IndexError):
        text = text.splitlines()[0]
    return text[:200] or type(error).__name__
