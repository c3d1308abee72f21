"""A PyMySQL connection whose every read and write ends at a deadline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fencepost.leases.stores.sql.backend import GrantEnding, Row
from fencepost.sql.pymysql_link import ERRORS, BoundedPyMySQL
from fencepost.sql.troubles import CallTimedOut, Trouble, mysql_code, trouble_of

_NOT_PREPARED = 1243
_STEPS_PER_S = 64


class PymysqlConnection:
    """The seam's connection on PyMySQL."""

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
        """Nothing: a broken connection shows itself soon enough."""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Execute and fetch all."""
        self._execute(sql, parameters)
        return list(self._cursor.fetchall())

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute and count: rows found, that is, also those that were as they should be already."""
        return self._execute(sql, parameters)

    def number(self, sql: str, parameters: Sequence[Any] = ()) -> int | None:
        """Execute and return what the statement has put into LAST_INSERT_ID; None if the row was there already."""
        try:
            count = self._execute(sql, parameters)
        except ERRORS as error:
            if trouble_of(error) is not Trouble.DUPLICATE:
                raise
            return None
        return self._cursor.lastrowid if count else None

    def end_grant(self, ending: GrantEnding) -> tuple[bool, bool]:
        """End and record in one transaction, sent as one packet. Who waits here polls: nobody needs to be woken."""
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
        """Roll back, if there is anything to roll back."""
        self._execute("ROLLBACK")

    def close(self) -> None:
        """Close at once."""
        self.raw.close()

    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        # In steps, because changing the limit costs a system call.
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
            self._prepares = frozenset()  # a proxy gives us another server's session now and then: spell it out
            return self._cursor.execute(sql, tuple(parameters))

    def _prepare(self, sql: str) -> str:
        """Prepare a statement on first use, and return what executes it: the server need not parse it each time."""
        name = f"fencepost_{len(self._prepared)}"
        self._cursor.execute(f"PREPARE {name} FROM %s", (sql.replace("%s", "?").replace("%%", "%"),))
        self._prepared[sql] = f"EXECUTE {name} USING {', '.join(['%s'] * sql.count('%s'))}"
        return self._prepared[sql]
