"""Calls to the database: one deadline each, repeated where that is safe, and ended by values or `StoreUnavailable`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fencepost.core.duration import spelled
from fencepost.core.runtime import Runtime
from fencepost.errors import StoreUnavailable
from fencepost.leases.stores.sql.backend import Backend, LeaseConnection
from fencepost.sql.forked_sqlite import FORKED_SQLITE
from fencepost.sql.pool import Pool
from fencepost.sql.troubles import REPEATABLE, SLOW, CallTimedOut, Trouble, first_line, trouble_of

T = TypeVar("T")

_CONFLICTS_BORNE = 5


def all_busy(_waited_s: float) -> CallTimedOut:
    """Make the error of a call that got no connection in time."""
    return CallTimedOut("all connections were busy")


def _close(connection: LeaseConnection) -> None:
    connection.close()


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
        self.pool = Pool(runtime, backend.connect, close=_close, limit=limit, busy=all_busy)

    def run(self, timeout_s: float, work: Callable[[LeaseConnection], T]) -> T:
        """Do `work` within `timeout_s`; any failure is `StoreUnavailable`."""
        try:
            return self.run_raw(timeout_s, work)
        except self.expected as error:
            raise self.unavailable(error, timeout_s) from error

    def run_raw(self, timeout_s: float, work: Callable[[LeaseConnection], T]) -> T:
        """Do `work` within `timeout_s`, and let the driver's own errors through."""
        deadline = self._clock() + timeout_s
        conflicts, repeats = 0, False
        while True:
            if FORKED_SQLITE.forking and self._backend.is_file:
                FORKED_SQLITE.let_fork(self._clock, self._runtime.sleep)
            connection, reused = self.pool.take(deadline)
            connection.deadline = deadline
            connection.repeats = repeats
            try:
                connection.begin_call()
                result = work(connection)
            except BaseException as error:
                trouble = trouble_of(error)
                if trouble is Trouble.BROKEN and reused and not repeats:
                    repeats = True
                    self.pool.drop(connection)
                    self.pool.drop_idle()
                elif trouble in REPEATABLE and conflicts < _CONFLICTS_BORNE and self._clock() < deadline:
                    conflicts += 1
                    self._roll_back(connection)
                else:
                    self.pool.drop(connection)
                    raise
            else:
                self.pool.give(connection)
                return result

    def is_broken(self, error: Exception) -> bool:
        """Whether the connection is gone, as against slow or refusing."""
        return trouble_of(error) is Trouble.BROKEN

    def _roll_back(self, connection: LeaseConnection) -> None:
        """Make the connection fit for another try, by replacing it if need be."""
        try:
            connection.rollback()
        except Exception:  # noqa: BLE001 - whatever it is, another connection will do
            self.pool.drop(connection)
        else:
            self.pool.give(connection)

    def unavailable(self, error: Exception, timeout_s: float) -> StoreUnavailable:
        """Put a failure into words that tell an operator enough, and nobody a secret."""
        if trouble_of(error) in SLOW:
            return StoreUnavailable(f"{self._backend.product} did not answer within {spelled(round(timeout_s, 3))}")
        return StoreUnavailable(f"{self._backend.product}: {first_line(error)}")
