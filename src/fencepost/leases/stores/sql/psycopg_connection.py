"""A `LeaseConnection` on psycopg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.leases.stores.sql.backend import GrantEnding, Row
from fencepost.sql.psycopg_link import BoundedPsycopg


class PsycopgConnection:
    """A `LeaseConnection` on psycopg. `is_proxied`: there is a pooler between client and server."""

    def __init__(self, raw: BoundedPsycopg, *, end_sql: str) -> None:
        self.raw = raw
        self.repeats = False
        self.is_proxied = raw.is_proxied
        self._cursor = raw.cursor()
        self._execute = self._cursor.execute
        self._end_sql = end_sql
        self._begin_sql = raw.begin_sql

    @property
    def deadline(self) -> float:
        """When the current call must end."""
        return self.raw.deadline

    @deadline.setter
    def deadline(self, at: float) -> None:
        self.raw.limit_call(at)

    def begin_call(self) -> None:
        """Nothing to do: a broken connection is noticed at the first statement."""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Execute and fetch all."""
        return self._execute(sql, parameters).fetchall()

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute and count."""
        return self._execute(sql, parameters).rowcount

    def number(self, sql: str, parameters: Sequence[Any] = ()) -> int | None:
        """Execute and fetch the one number it returns."""
        row = self._execute(sql, parameters).fetchone()
        return None if row is None else row[0]

    def end_grant(self, ending: GrantEnding) -> tuple[bool, bool]:
        """End and record the grant with one statement: a data-modifying WITH."""
        row = self._execute(self._end_sql, (*ending.parameters, ending.why)).fetchone()
        return (False, False) if row is None else (True, row[0])

    def begin(self) -> None:
        """Begin a transaction, which the server rolls back if this process stops in the middle."""
        self._execute(self._begin_sql)

    def commit(self) -> None:
        """Commit."""
        self._execute("COMMIT")

    def rollback(self) -> None:
        """Roll back, if a transaction is open."""
        if self.raw.is_in_transaction:
            self._execute("ROLLBACK")

    def close(self) -> None:
        """Close at once."""
        self.raw.close()
