"""Connections of psycopg. Inside the block, `commit()` and `rollback()` of the connection are refused.

A transaction begins on the server together with its first statement.
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
    """A psycopg connection, with or without autocommit."""

    is_mariadb = False

    def __init__(self, given: psycopg.Connection[Any]) -> None:
        self.given = self.raw = given
        self.target: Target = target_of(given)
        self._isolation = given.isolation_level
        self._autocommit = given.autocommit

    @property
    def place(self) -> Hashable:
        """The server, database and user. `dsn` has them too, but is computed on every access."""
        known = _places.get(self.given)
        if known is None:
            info = self.given.info
            known = ("psycopg", info.host, info.hostaddr, info.port, info.dbname, info.user, info.options)
            _places[self.given] = known
        return known

    def open(self) -> None:
        """Refuse a connection that is in a transaction, or in a pipeline."""
        if self.given.pgconn.pipeline_status != PipelineStatus.OFF:
            raise RuntimeError(
                "this connection is in a pipeline, where results arrive too late for the fence; use it outside"
            )
        if self.given.info.transaction_status is not TransactionStatus.IDLE:
            if self.given.closed:
                raise psycopg.OperationalError("the connection is closed")
            raise in_a_transaction(self.given)
        self._isolation, self._autocommit = self.given.isolation_level, self.given.autocommit
        if self._autocommit:  # otherwise statements after the user's own COMMIT could not be rolled back
            self.given.autocommit = False

    def begin(self, isolation: str) -> None:
        """Set the isolation level. The next statement begins the transaction."""
        wanted = _LEVELS[isolation]
        if self.given.isolation_level is not wanted:
            self.given.isolation_level = wanted
        hold(self.given, "commit", "rollback")

    def commit(self) -> None:
        """Commit, unless a COMMIT was already sent through libpq."""
        release(self.given)
        try:
            self.given.commit()
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """Roll back, including a transaction that the user began with COMMIT and BEGIN statements."""
        release(self.given)
        with suppress(psycopg.Error):
            self.given.rollback()
        with suppress(psycopg.Error):
            roll_back(self.given)

    @property
    def ends_with_commit(self) -> bool:
        """True unless inside ``connection.transaction()``: psycopg reads the transaction status from libpq."""
        return not getattr(self.given, "_num_transactions", 0)

    def retold(self, error: Exception) -> Exception:
        return error

    def flush(self) -> None:
        """Do nothing: there are no pending changes."""

    def execute_outside(self, sql: str) -> None:
        """Do nothing: PostgreSQL needs no settings outside the transaction."""

    def close(self) -> None:
        """Restore isolation level and autocommit."""
        with suppress(psycopg.Error):  # the connection is broken
            if self.given.isolation_level is not self._isolation:
                self.given.isolation_level = self._isolation
            if self._autocommit:
                self.given.autocommit = True
