"""How long a transaction may keep everybody else from writing to a SQLite file.

SQLite has one writer at a time, so a job that waits for something else inside its transaction holds up the ledger.
When the limit is reached the transaction is rolled back from outside, whatever the job is doing, and what it asks of
the connection afterwards is refused.

A connection that sqlite3 binds to its thread (``check_same_thread``, the default of `sqlite3.connect`; not of
SQLAlchemy and Django) cannot be rolled back by another. There a statement that runs is interrupted, and the rest is
left to the end of the block, which then rolls back: until it comes, the file stays locked.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from fencepost.core.runtime import Runtime

LIMIT_S = 5.0
_TRIES = 100


class SqliteLimit:
    """Ends one transaction after `limit_s`, unless it has ended before."""

    def __init__(self, runtime: Runtime, connection: sqlite3.Connection, *, limit_s: float = LIMIT_S) -> None:
        self._connection = connection
        self._limit_s = limit_s
        self._lock = runtime.lock()
        self._over = runtime.event()
        self._has_ended = False
        self.was_reached = False
        runtime.spawn("fencepost-transaction-limit", self._watch)

    def end(self) -> bool:
        """Note that the transaction ends by itself; False if it is too late for that."""
        with self._lock:
            self._has_ended = True
        self._over.set()
        return not self.was_reached

    def lift(self) -> None:
        """Make the connection usable again, for whoever gets it next."""
        if self.was_reached:
            self._connection.execute("PRAGMA query_only = OFF")

    def _watch(self) -> None:
        if self._over.wait(self._limit_s):
            return
        with self._lock:
            if not self._has_ended:
                self.was_reached = True
                self._roll_back()

    def _roll_back(self) -> None:
        """Forbid writing first: a statement on its way would else be executed, and committed, behind the roll-back."""
        for _ in range(_TRIES):
            self._connection.interrupt()
            try:
                self._connection.execute("PRAGMA query_only = ON")
                break
            except sqlite3.ProgrammingError:  # it is bound to its thread
                return
            except sqlite3.OperationalError:  # the interruption may hit this statement too
                continue
        with suppress(sqlite3.Error):
            self._connection.rollback()
