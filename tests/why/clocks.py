"""A ledger whose clock is set by the test, on each database: a story of half a year takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from fencepost.ledger.dialects.mysql import MysqlDialect
from fencepost.ledger.dialects.postgres import PostgresDialect
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.threaded import ThreadedRuntime

_TABLE = "why_clock"


class SetRuntime(ThreadedRuntime):
    """A machine whose clocks show what they are set to."""

    at_us = 0

    def wall_us(self) -> int:
        return self.at_us

    def monotonic(self) -> float:
        return self.at_us / 1_000_000


class SetClock:
    """The clock of one ledger and of the machine that looks at it."""

    def __init__(self, ledger: Ledger, runtime: SetRuntime) -> None:
        self._ledger = ledger
        self._runtime = runtime
        self._is_in_a_table = not ledger.dialect.has_one_writer
        if self._is_in_a_table:
            self._execute(f"DROP TABLE IF EXISTS {_TABLE}", f"CREATE TABLE {_TABLE} (us BIGINT NOT NULL)")
            self._execute(f"INSERT INTO {_TABLE} VALUES (0)")

    def set(self, at_us: int) -> None:
        self._runtime.at_us = at_us
        if self._is_in_a_table:
            self._execute(f"UPDATE {_TABLE} SET us = {at_us:d}")

    def _execute(self, *statements: str) -> None:
        connection = self._ledger.connect("clock")
        for statement in statements:
            with connection.autocommit() as cursor:
                cursor.execute(statement)
        connection.rest()


@contextmanager
def ledger_with_set_clock(url: str) -> Iterator[tuple[Ledger, SetClock]]:
    """Open a ledger, whose tables are there, with a clock that is set."""
    sql = f"(SELECT us FROM {_TABLE})"
    with mock.patch.object(PostgresDialect, "now_sql", sql), mock.patch.object(MysqlDialect, "now_sql", sql):
        runtime = SetRuntime()
        ledger = open_ledger(url, runtime)
        try:
            yield ledger, SetClock(ledger, runtime)
        finally:
            ledger.close()
