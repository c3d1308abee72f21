"""Connections of psycopg. Whoever has one in hand inside the block finds `commit()` and `rollback()` refused.

A transaction begins on the server along with its first statement.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from fencepost.fence.sources.quick import roll_back
from fencepost.fence.sources.source import hold, in_a_transaction, release
from fencepost.fence.target import Target, target_of

_LEVELS = {level.name.lower().replace("_", " "): level for level in psycopg.IsolationLevel}
_places: WeakKeyDictionary[psycopg.Connection[Any], Hashable] = WeakKeyDictionary()


class PsycopgSource:
    """A connection of psycopg, autocommit or not."""

    is_mariadb = False

    def __init__(self, given: psycopg.Connection[Any]) -> None:
        self.given = self.raw = given
        self.target: Target = target_of(given)
        self._isolation = given.isolation_level
        self._autocommit = given.autocommit

    @property
    def place(self) -> Hashable:
        """Where it leads, and as whom; `dsn` would say so too, but is made anew each time it is asked for."""
        known = _places.get(self.given)
        if known is None:
            info = self.given.info
            known = ("psycopg", info.host, info.hostaddr, info.port, info.dbname, info.user, info.options)
            _places[self.given] = known
        return known

    def open(self) -> None:
        """Refuse one that is in a transaction, or does not answer before its pipeline ends."""
        if self.given.pgconn.pipeline_status != PipelineStatus.OFF:
            raise RuntimeError("this connection is in a pipeline, where nothing is answered in time; use it outside")
        if self.given.info.transaction_status is not TransactionStatus.IDLE:
            if self.given.closed:
                raise psycopg.OperationalError("the connection is closed")
            raise in_a_transaction(self.given)
        self._isolation, self._autocommit = self.given.isolation_level, self.given.autocommit
        if self._autocommit:  # else what follows somebody's own COMMIT could not be rolled back
            self.given.autocommit = False

    def begin(self, isolation: str) -> None:
        """Let the next statement begin it."""
        wanted = _LEVELS[isolation]
        if self.given.isolation_level is not wanted:
            self.given.isolation_level = wanted
        hold(self.given, "commit", "rollback")

    def commit(self) -> None:
        """Commit, if that has not been done past psycopg."""
        release(self.given)
        try:
            self.given.commit()
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """Roll back, also what a user's own COMMIT and BEGIN left behind."""
        release(self.given)
        with suppress(psycopg.Error):
            self.given.rollback()
        with suppress(psycopg.Error):
            roll_back(self.given)

    @property
    def ends_with_commit(self) -> bool:
        """Psycopg asks the connection whether it is in a transaction; but refuses inside a block of its own."""
        return not getattr(self.given, "_num_transactions", 0)

    def retold(self, error: Exception) -> Exception:
        """It is psycopg's."""
        return error

    def flush(self) -> None:
        """Nothing waits to be sent."""

    def execute_outside(self, sql: str) -> None:
        """On PostgreSQL there is nothing to set."""

    def close(self) -> None:
        """Put the settings back."""
        with suppress(psycopg.Error):  # it is broken
            if self.given.isolation_level is not self._isolation:
                self.given.isolation_level = self._isolation
            if self._autocommit:
                self.given.autocommit = True
