"""SQLite: one file, one writer at a time. Time is the machine's, as the Runtime tells it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Table, literal
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.dialects.sqlite.pysqlite import dialect as sqlite_words

from fencepost.core.forked_sqlite import FORKED_SQLITE
from fencepost.ledger.dialects.dialect import Connection, Cursor, Dialect, Parameters, Trouble

OLDEST_VERSION = (3, 35, 0)
_BUSY = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED))
_REFUSED = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder exists, and the rights on both",
    sqlite3.SQLITE_READONLY: "cannot be written; check the rights on it and on its folder",
    sqlite3.SQLITE_PERM: "may not be opened; check the rights on it and on its folder",
    sqlite3.SQLITE_NOTADB: "is no SQLite database; name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a backup",
}
_STATEMENTS_KEPT = 512


class FileConnection(sqlite3.Connection):
    """A connection that remembers which file it opened: the path may lead to another one later."""

    identity: tuple[int, int] | None = None


class FileReplacedError(sqlite3.OperationalError):
    """The file was deleted or replaced under an open connection: what is written there, others would not see."""


class SqliteDialect(Dialect):
    """A ledger in a file."""

    name = "sqlite"
    errors = (sqlite3.Error,)
    words = sqlite_words()
    mark = "?"
    for_update = ""
    skip_locked = ""
    share = ""
    has_one_writer = True
    keeps_journal_mode = False  # of a file that is somebody else's
    _was_forked_in_use = False

    @property
    def product(self) -> str:
        """The file."""
        return f"SQLite file {self.url.path}"

    @property
    def now_sql(self) -> str:
        """The time, as a number."""
        return str(self.runtime.wall_us())

    def now(self) -> ColumnElement[int]:
        """Return the time, as a parameter."""
        return literal(self.runtime.wall_us(), BigInteger())

    def dial(self, timeout_s: float | None = None) -> FileConnection:
        """Open the file. Reads never wait (WAL); writes wait for each other; what is committed is on the disk."""
        if self._was_forked_in_use:
            raise sqlite3.OperationalError(
                "this process was forked in the middle of a call to SQLite, whose locks do not survive that; "
                "fork before the ledger is used, or start the process anew (spawn)"
            )
        connection = sqlite3.connect(
            self.url.path,
            timeout=self.timeout_s if timeout_s is None else timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS_KEPT,
            factory=FileConnection,
        )
        try:
            if not self.keeps_journal_mode:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("PRAGMA synchronous = FULL")
            connection.identity = _identity(self.url.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def begin(self, connection: Any, cursor: Cursor) -> None:
        """Begin as a writer, so that nothing read can change before it is acted on."""
        cursor.execute("BEGIN IMMEDIATE")

    def hang_up(self, connection: Any, cursor: Any) -> None:
        """Close the cursor first: while its last statement is not reset, SQLite keeps the file open, and locked.

        That would last as long as anybody has the cursor, such as the traceback of the error we close it for.
        """
        if cursor is not None:
            cursor.close()
        connection.close()

    def is_stale(self, connection: Any) -> bool:
        """Whether the path leads to another file by now, or to none."""
        return bool(_identity(self.url.path) != connection.identity)

    def forget(self, connections: Sequence[Connection], *, in_use: int) -> None:
        """Close, in a forked child, what the parent had open, together with all others that use SQLite.

        The parent's own locks keep the closing from touching the files. If somebody was inside SQLite at the fork,
        this process has to do without it: see `fencepost.core.forked_sqlite`.
        """
        self._was_forked_in_use = FORKED_SQLITE.settle(self.runtime.process_id(), connections, in_use=in_use)

    def trouble(self, error: Exception) -> Trouble:
        """Tell a busy file from a vanished one and from one that cannot be used."""
        code = _code(error)
        if isinstance(error, FileReplacedError):
            return Trouble.BROKEN
        if code in _BUSY:
            return Trouble.LATE
        is_refused = code in _REFUSED or self.lacks_tables(error)
        return Trouble.REFUSED if is_refused or isinstance(error, sqlite3.IntegrityError) else Trouble.OTHER

    def lacks_tables(self, error: BaseException | None) -> bool:
        """Whether a table or a column is not there."""
        text = str(error)
        return text.startswith(("no such table", "no such column")) or "has no column named" in text

    def refusal(self, error: Exception) -> str:
        """Say what is wrong with the file."""
        if self.lacks_tables(error):
            return f"{self.url.path} lacks tables of the ledger ({error}): run: fencepost migrate"
        meaning = _REFUSED.get(_code(error))
        return f"{self.url.path} {meaning}: {error}" if meaning else f"{self.product}: {error}"

    def json_table(self, alias: str, columns: Mapping[str, str]) -> str:
        """Take the list apart with json_each."""
        chosen = ", ".join(f"json_extract(value, '$[{place}]') AS {name}" for place, name in enumerate(columns))
        return f"(SELECT {chosen} FROM json_each(?)) AS {alias}"  # noqa: S608 - names of ours

    def objection(self, cursor: Cursor) -> str | None:
        """Look at the version: RETURNING is needed."""
        if sqlite3.sqlite_version_info >= OLDEST_VERSION:
            return None
        return f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or later is needed"

    def insert_row(self, cursor: Cursor, table: Table, values: Mapping[str, Any]) -> bool:
        """Insert, and count."""
        return self.execute(cursor, insert(table).values(dict(values)).on_conflict_do_nothing()).rowcount == 1

    def insert_new(self, cursor: Cursor, sql: str, parameters: Parameters) -> int | None:
        """Insert, and let the statement tell the id."""
        cursor.execute(f"{sql} ON CONFLICT DO NOTHING RETURNING id", parameters)
        rows = cursor.fetchall()
        return rows[0][0] if rows else None

    def unless_there(self, table: str, key: str) -> str:
        """Return ON CONFLICT DO NOTHING."""
        return " ON CONFLICT DO NOTHING"


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
