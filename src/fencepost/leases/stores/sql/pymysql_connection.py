"""A `LeaseConnection` on PyMySQL: every read and write ends at a deadline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fencepost.leases.stores.sql.backend import GrantEnding, Row
from fencepost.sql.pymysql_link import ERRORS, BoundedPyMySQL
from fencepost.sql.troubles import CallTimedOut, Trouble, mysql_code, trouble_of

_NOT_PREPARED = 1243  # ER_UNKNOWN_STMT_HANDLER: this session has no such prepared statement
_STEPS_PER_S = 64  # limits are rounded down to this, so that calls in quick succession need not change them


class PymysqlConnection:
    """A `LeaseConnection` on PyMySQL."""

    def __init__(
        self,
        raw: BoundedPyMySQL,
        *,
        clock: Callable[[], float],
        end_sql: str,
        prepares: frozenset[str] = frozenset(),
    ) -> None:
        self.raw = raw
        self.repeats = False
        self.deadline = math.inf
        self._clock = clock
        self._cursor = raw.cursor()
        self._end_sql = end_sql
        self._prepares = prepares
        self._prepared: dict[str, str] = {}
        self._limit_s = 0.0

    def begin_call(self) -> None:
        """Nothing to do: a broken connection is noticed at the first statement."""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Execute and fetch all."""
        self._execute(sql, parameters)
        return list(self._cursor.fetchall())

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute and return the number of rows found, including those that already had the new values."""
        return self._execute(sql, parameters)

    def number(self, sql: str, parameters: Sequence[Any] = ()) -> int | None:
        """Execute and return the statement's LAST_INSERT_ID; None if the row already exists."""
        try:
            count = self._execute(sql, parameters)
        except ERRORS as error:
            if trouble_of(error) is not Trouble.DUPLICATE:
                raise
            return None
        return self._cursor.lastrowid if count else None

    def end_grant(self, ending: GrantEnding) -> tuple[bool, bool]:
        """End and record the grant in one transaction, sent as one packet. Waiters poll, so none is notified."""
        changed = self._execute(self._end_sql, (*ending.parameters, ending.why, ending.name))
        while self._cursor.nextset():
            changed += self._cursor.rowcount
        return changed > 0, False

    def begin(self) -> None:
        """Begin a transaction."""
        self._execute("BEGIN")

    def commit(self) -> None:
        """Commit."""
        self._execute("COMMIT")

    def rollback(self) -> None:
        """Roll back, if a transaction is open."""
        self._execute("ROLLBACK")

    def close(self) -> None:
        """Close at once."""
        self.raw.close()

    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        # In steps, because changing the limit needs a system call.
        left_s = math.floor((self.deadline - self._clock()) * _STEPS_PER_S) / _STEPS_PER_S
        if left_s != self._limit_s:
            if left_s <= 0:
                raise CallTimedOut
            self.raw.limit(left_s)
            self._limit_s = left_s
        if sql not in self._prepares:
            return self._cursor.execute(sql, tuple(parameters))
        try:
            return self._cursor.execute(self._prepared.get(sql) or self._prepare(sql), tuple(parameters))
        except ERRORS as error:
            if mysql_code(error) != _NOT_PREPARED:
                raise
            self._prepares = frozenset()  # a proxy has switched the session, so statements cannot be prepared
            return self._cursor.execute(sql, tuple(parameters))

    def _prepare(self, sql: str) -> str:
        """Prepare a statement on first use, so that the server parses it once; return the EXECUTE for it."""
        name = f"fencepost_{len(self._prepared)}"
        self._cursor.execute(f"PREPARE {name} FROM %s", (sql.replace("%s", "?").replace("%%", "%"),))
        self._prepared[sql] = f"EXECUTE {name} USING {', '.join(['%s'] * sql.count('%s'))}"
        return self._prepared[sql]
