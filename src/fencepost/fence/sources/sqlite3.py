"""Connections of sqlite3. A commit inside the block cannot be prevented, but is detected at the end of the block."""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable
from contextlib import suppress

from fencepost.fence.sources.source import in_a_transaction
from fencepost.fence.target import Target, target_of


class SqliteSource:
    """A sqlite3 connection with any `isolation_level`, but not with ``autocommit=False``."""

    ends_with_commit = False
    is_mariadb = False

    def __init__(self, given: sqlite3.Connection) -> None:
        self.given = self.raw = given
        self.target: Target = target_of(given)
        self._place: Hashable | None = None
        self._level = given.isolation_level

    @property
    def place(self) -> Hashable | None:
        """The file; None for a database in memory, which has no unique name."""
        return self._place

    def open(self) -> None:
        """Refuse a connection that is in a transaction."""
        if getattr(self.given, "autocommit", None) is False:
            raise RuntimeError(
                "a sqlite3 connection with autocommit=False is always in a transaction, so a transaction cannot be "
                "fenced from its beginning; connect with isolation_level=None"
            )
        if self.given.in_transaction:
            raise in_a_transaction(self.given)
        file = next((row[2] for row in self.target.execute("PRAGMA database_list").rows if row[1] == "main"), "")
        self._place = ("sqlite3", file) if file else None
        self._level = self.given.isolation_level
        if self._level is None:  # otherwise statements after the user's own COMMIT could not be rolled back
            self.given.isolation_level = "DEFERRED"

    def begin(self, isolation: str) -> None:
        """Do nothing: SQLite has one isolation level, and the first statement begins the transaction."""

    def commit(self) -> None:
        """Commit with a statement, because `commit()` does nothing with ``autocommit=True``."""
        if self.given.in_transaction:
            self.target.execute("COMMIT")

    def roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self.given.in_transaction:
                self.target.execute("ROLLBACK")

    def retold(self, error: Exception) -> Exception:
        return error

    def flush(self) -> None:
        """Do nothing: there are no pending changes."""

    def execute_outside(self, sql: str) -> None:
        """Do nothing: SQLite needs no settings outside the transaction."""

    def close(self) -> None:
        """Restore the isolation level."""
        if self.given.isolation_level != self._level:
            self.given.isolation_level = self._level
