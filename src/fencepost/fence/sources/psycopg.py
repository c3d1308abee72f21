"""Connections of psycopg. Inside its own `transaction()` it refuses `commit()` and `rollback()` by itself."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus

from fencepost.fence.sources.source import in_a_transaction
from fencepost.fence.target import Target, target_of

_places: WeakKeyDictionary[psycopg.Connection[Any], Hashable] = WeakKeyDictionary()


class PsycopgSource:
    """A connection of psycopg, autocommit or not."""

    is_mariadb = False

    def __init__(self, given: psycopg.Connection[Any]) -> None:
        self.given = self.raw = given
        self.target: Target = target_of(given)
        self._transaction: Any = None
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
        """Refuse one that is in a transaction."""
        if self.given.info.transaction_status is not TransactionStatus.IDLE:
            if self.given.closed:
                raise psycopg.OperationalError("the connection is closed")
            raise in_a_transaction(self.given)
        self._isolation, self._autocommit = self.given.isolation_level, self.given.autocommit
        if self._autocommit:  # else what follows somebody's own COMMIT could not be rolled back
            self.given.autocommit = False

    def begin(self, isolation: str) -> None:
        """Begin; the isolation is sent along with it."""
        wanted = psycopg.IsolationLevel[isolation.upper().replace(" ", "_")]
        if self.given.isolation_level is not wanted:
            self.given.isolation_level = wanted
        transaction = self.given.transaction()
        transaction.__enter__()
        self._transaction = transaction

    def commit(self) -> None:
        """Commit."""
        transaction, self._transaction = self._transaction, None
        try:
            transaction.__exit__(None, None, None)
        except BaseException:
            self._make_sure()
            raise

    def roll_back(self) -> None:
        """Roll back, also what a user's own COMMIT and BEGIN left behind."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            with suppress(psycopg.Error):
                transaction.__exit__(psycopg.Rollback, psycopg.Rollback(), None)
        self._make_sure()

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

    def _make_sure(self) -> None:
        with suppress(psycopg.Error):
            if self.given.info.transaction_status is not TransactionStatus.IDLE:
                self.given.rollback()
