"""Limits how long a transaction may keep other connections from writing to a SQLite file.

SQLite has one writer at a time, so a job that waits for something inside its transaction blocks the ledger. When the
limit is reached, another thread rolls back the transaction, whatever the job is doing. Statements on the connection are
then refused.

The limit is of time in which this process runs: it is waited for in parts, and if the process or its machine is
suspended, however long, that takes no more than one part. So a job that does not wait for anything is not ended because
its machine slept, and whether it may still commit is for the fence to decide. Code in C that keeps the interpreter for
itself counts as one part, too.

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
_PARTS = 10  # of the limit; one of them is lost by a suspension


class SqliteLimit:
    """Ends one transaction after `limit_s`, unless it has ended by then."""

    def __init__(self, runtime: Runtime, connection: sqlite3.Connection, *, limit_s: float = LIMIT_S) -> None:
        self._connection = connection
        self._limit_s = limit_s
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
        if any(self._over.wait(self._limit_s / _PARTS) for _ in range(_PARTS)):
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
