"""Limits how long a transaction may keep other connections from writing to a SQLite file.

SQLite has one writer at a time, so a job that waits for something inside its transaction blocks the ledger. When the
limit is reached, another thread rolls back the transaction, whatever the job is doing. Statements on the connection are
then refused.

The limit is of a process that runs. If the process or its machine was suspended meanwhile, the transaction gets the
same time once more: the job does not wait for anything, and whether it may still commit is for the fence to decide.

A connection that sqlite3 binds to its thread (``check_same_thread``, the default of `sqlite3.connect`, but not of
SQLAlchemy and Django) cannot be rolled back by another thread. There, a running statement is interrupted, and the
transaction is rolled back at the end of the block. Until then, the file stays locked.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from fencepost.core.runtime import Runtime

LIMIT_S = 5.0  # as long as sqlite3 waits for a lock by default, before "database is locked"
_TRIES = 100  # the interruption may hit our own statement, but hardly so often
_SUSPENDED_S = 1.0  # later than this, the end of a wait is not noticed on a busy machine, but after a suspension


class SqliteLimit:
    """Ends one transaction after `limit_s`, unless it has ended by then."""

    def __init__(self, runtime: Runtime, connection: sqlite3.Connection, *, limit_s: float = LIMIT_S) -> None:
        self._runtime = runtime
        self._connection = connection
        self._limit_s = limit_s
        self._began_at = runtime.monotonic()
        self._lock = runtime.lock()
        self._over = runtime.event()
        self._has_ended = False
        self.was_reached = False
        runtime.spawn("fencepost-transaction-limit", self._watch)

    def end(self) -> bool:
        """Stop the limit, because the transaction ends; False if the limit was already reached."""
        with self._lock:
            self._has_ended = True
        self._over.set()
        return not self.was_reached

    def lift(self) -> None:
        """Allow writing on the connection again, for its next user."""
        if self.was_reached:
            self._connection.execute("PRAGMA query_only = OFF")

    def _watch(self) -> None:
        if self._over.wait(self._limit_s):
            return
        was_suspended = self._runtime.monotonic() - self._began_at > self._limit_s + _SUSPENDED_S
        if was_suspended and self._over.wait(self._limit_s):
            return
        with self._lock:
            if not self._has_ended:
                self.was_reached = True
                self._roll_back()

    def _roll_back(self) -> None:
        """Forbid writing first: otherwise a concurrent statement could be executed and committed after the rollback."""
        for _ in range(_TRIES):
            self._connection.interrupt()
            try:
                self._connection.execute("PRAGMA query_only = ON")
                break
            except sqlite3.ProgrammingError:  # the connection is bound to its thread
                return
            except sqlite3.OperationalError:  # the interruption hit this statement
                continue
        with suppress(sqlite3.Error):
            self._connection.rollback()
