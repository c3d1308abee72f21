"""Connections of sqlite3. That somebody committed inside the block is noticed at its end, and cannot be prevented."""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable
from contextlib import suppress

from fencepost.fence.sources.source import in_a_transaction
from fencepost.fence.target import Target, target_of


class SqliteSource:
    """A connection of sqlite3, whatever its `isolation_level`; only not one with ``autocommit=False``."""

    ends_with_commit = False
    is_mariadb = False

    def __init__(self, given: sqlite3.Connection) -> None:
        self.given = self.raw = given
        self.target: Target = target_of(given)
        self._place: Hashable | None = None
        self._level = given.isolation_level

    @property
    def place(self) -> Hashable | None:
        """The file; a database in memory has no name that tells it from others."""
        return self._place

    def open(self) -> None:
        """Refuse one that is in a transaction."""
        if getattr(self.given, "autocommit", None) is False:
            raise RuntimeError(
                "a sqlite3 connection with autocommit=False is in a transaction at all times, so it cannot be fenced "
                "from the beginning of one; connect with isolation_level=None"
            )
        if self.given.in_transaction:
            raise in_a_transaction(self.given)
        file = next((row[2] for row in self.target.execute("PRAGMA database_list").rows if row[1] == "main"), "")
        self._place = ("sqlite3", file) if file else None
        self._level = self.given.isolation_level
        if self._level is None:  # else what follows somebody's own COMMIT could not be rolled back
            self.given.isolation_level = "DEFERRED"

    def begin(self, isolation: str) -> None:
        """There is one isolation; and whoever is to write becomes the writer with the first statement."""

    def commit(self) -> None:
        """Commit, also where `commit()` would do nothing (``autocommit=True``)."""
        if self.given.in_transaction:
            self.target.execute("COMMIT")

    def roll_back(self) -> None:
        """Roll back."""
        with suppress(sqlite3.Error):
            if self.given.in_transaction:
                self.target.execute("ROLLBACK")

    def retold(self, error: Exception) -> Exception:
        """It is sqlite3's."""
        return error

    def flush(self) -> None:
        """Nothing waits to be sent."""

    def execute_outside(self, sql: str) -> None:
        """On SQLite there is nothing to set."""

    def close(self) -> None:
        """Put the level back."""
        if self.given.isolation_level != self._level:
            self.given.isolation_level = self._level
