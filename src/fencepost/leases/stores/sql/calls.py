"""Calls to the database: each has one deadline, is retried where that is safe, and may raise `StoreUnavailable`."""

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

_CONFLICTS_BORNE = 5  # a deadlock again and again means contention, which the caller should learn of


def all_busy(_waited_s: float) -> CallTimedOut:
    """Return the error of a call that got no connection in time."""
    return CallTimedOut("all connections were busy")


def _close(connection: LeaseConnection) -> None:
    connection.close()


class Calls:
    """Runs work on pooled connections.

    The work must be idempotent. It is retried once if a connection that was used before turns out to be broken (the
    server was restarted, a firewall dropped it), and a few times after a deadlock or serialization failure. It is not
    retried after a timeout.
    """

    def __init__(self, runtime: Runtime, backend: Backend, *, limit: int) -> None:
        self._runtime = runtime
        self._backend = backend
        self._clock = runtime.monotonic
        self.expected: tuple[type[Exception], ...] = (CallTimedOut, OSError, *backend.driver_errors)
        self.pool = Pool(runtime, backend.connect, close=_close, limit=limit, busy=all_busy)

    def run(self, timeout_s: float, work: Callable[[LeaseConnection], T]) -> T:
        """Do `work` within `timeout_s`; any failure raises `StoreUnavailable`."""
        try:
            return self.run_raw(timeout_s, work)
        except self.expected as error:
            raise self.unavailable(error, timeout_s) from error

    def run_raw(self, timeout_s: float, work: Callable[[LeaseConnection], T]) -> T:
        """Do `work` within `timeout_s`; errors of the driver are passed on."""
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
        """Whether the connection is broken, rather than slow or refused."""
        return trouble_of(error) is Trouble.BROKEN

    def _roll_back(self, connection: LeaseConnection) -> None:
        """Prepare the connection for a retry; replace it if that fails."""
        try:
            connection.rollback()
        except Exception:  # noqa: BLE001 - after any error, another connection is used
            self.pool.drop(connection)
        else:
            self.pool.give(connection)

    def unavailable(self, error: Exception, timeout_s: float) -> StoreUnavailable:
        """Return the error for a failure, with a message that contains no secrets."""
        if trouble_of(error) in SLOW:
            return StoreUnavailable(f"{self._backend.product} did not answer within {spelled(round(timeout_s, 3))}")
        return StoreUnavailable(f"{self._backend.product}: {first_line(error)}")
