"""A `LeaseConnection` on SQLite. Reads never wait (WAL); writes wait for each other, up to the deadline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from fencepost.core.runtime import Runtime
from fencepost.leases.stores.sql.backend import GrantEnding, Row
from fencepost.leases.stores.sql.statements import Statements
from fencepost.sql import sqlite
from fencepost.sql.troubles import CallTimedOut, FileReplacedError

_PATIENCE_STEP_MS = 20  # differences below this are not worth a PRAGMA


class SqliteConnection:
    """A `LeaseConnection` on `sqlite3`."""

    def __init__(self, path: Path, sql: Statements, runtime: Runtime, *, timeout_s: float) -> None:
        self.repeats = False
        self._path = path
        self._sql = sql
        self._clock = runtime.monotonic
        self._deadline = self._clock() + timeout_s
        self._patience_ms = round(timeout_s * 1000)
        self.raw = sqlite.opened(path, timeout_s)
        # Without a Python wrapper: an exception of a signal handler inside a function that SQLite calls would be lost.
        self.raw.create_function("fencepost_now", 0, runtime.monotonic)
        self.raw.create_function("fencepost_wall", 0, runtime.wall_us)
        self._execute = self.raw.execute

    @property
    def deadline(self) -> float:
        """When the current call must end."""
        return self._deadline

    @deadline.setter
    def deadline(self, at: float) -> None:
        self._deadline = at

    def begin_call(self) -> None:
        """Check that the path still leads to the open file."""
        if self.raw.is_replaced():
            raise FileReplacedError(f"{self._path} was deleted or replaced while it was in use")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Execute and fetch all."""
        return self._execute(_qmark(sql), parameters).fetchall()

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute and count."""
        self._be_patient()
        return self._execute(_qmark(sql), parameters).rowcount

    def number(self, sql: str, parameters: Sequence[Any] = ()) -> int | None:
        """Execute and fetch the one number it returns."""
        self._be_patient()
        rows = self._execute(_qmark(sql), parameters).fetchall()
        return rows[0][0] if rows else None

    def end_grant(self, ending: GrantEnding) -> tuple[bool, bool]:
        """End and record the grant in one transaction. Waiters poll, so none is notified."""
        self.begin()
        has_ended = self._execute(_qmark(self._sql.end), ending.parameters).rowcount == 1
        if has_ended:
            self._execute(_qmark(f"{self._sql.past} WHERE name = %s"), (ending.why, ending.name))
        self.commit()
        return has_ended, False

    def begin(self) -> None:
        """Begin as a writer, so that no row that is read can change before the commit."""
        self._be_patient()
        self._execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit durably."""
        self._execute("COMMIT")

    def rollback(self) -> None:
        """Roll back, if a transaction is open."""
        if self.raw.in_transaction:
            self._execute("ROLLBACK")

    def close(self) -> None:
        """Close the file."""
        self.raw.close()

    def _be_patient(self) -> None:
        """Let SQLite wait for other writers as long as the deadline allows."""
        left_ms = round((self._deadline - self._clock()) * 1000)
        if left_ms <= 0:
            raise CallTimedOut
        if abs(left_ms - self._patience_ms) > _PATIENCE_STEP_MS:
            self._execute(f"PRAGMA busy_timeout = {left_ms}")
            self._patience_ms = left_ms


@lru_cache(maxsize=512)
def _qmark(sql: str) -> str:
    return sql.replace("%s", "?").replace("%%", "%")
