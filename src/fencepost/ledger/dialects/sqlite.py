"""SQLite: one file, one writer at a time. The time is that of the machine, read from the Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Table, literal
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.dialects.sqlite.pysqlite import dialect as sqlite_words

from fencepost.errors import LedgerRefused
from fencepost.ledger.dialects.dialect import ORIGIN_KEY, Cursor, Dialect, Parameters, Row
from fencepost.sql import sqlite
from fencepost.sql.forked_sqlite import FORKED_SQLITE, Closable
from fencepost.sql.spelling import SPELLING
from fencepost.sql.sqlite import FileConnection
from fencepost.sql.troubles import LACKS_TABLES, trouble_of


class SqliteDialect(Dialect):
    """A ledger in a file."""

    name = "sqlite"
    errors = sqlite.ERRORS
    words = sqlite_words()
    mark = "?"
    spelling = SPELLING["sqlite"]
    has_one_writer = True
    weighs_sorting = False
    keeps_journal_mode = False  # set for a file that does not belong to the ledger

    @property
    def product(self) -> str:
        return f"SQLite file {self.url.path}"

    @property
    def now_sql(self) -> str:
        """The time as a number."""
        return str(self.runtime.wall_us())

    def now(self) -> ColumnElement[int]:
        """Return the time as a parameter."""
        return literal(self.runtime.wall_us(), BigInteger())

    def now_us(self, cursor: Cursor) -> int:
        """Return the machine's time, without a statement."""
        return self.runtime.wall_us()

    def dial(self, timeout_s: float | None = None) -> FileConnection:
        """Open the file. Reads never wait (WAL), writes wait for each other, and commits are durable."""
        _refuse_other_names(self.url.path)
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        return sqlite.opened(self.url.path, limit_s, keeps_journal_mode=self.keeps_journal_mode)

    def begin(self, connection: Any, cursor: Cursor) -> None:
        """Begin as the writer, so that rows that were read cannot change before they are updated."""
        cursor.execute("BEGIN IMMEDIATE")

    def insert_absent(self, cursor: Cursor, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert row by row: a statement takes 32,766 parameters at most, and a row costs no round trip here."""
        into = f"INTO {table} ({', '.join(columns)}) VALUES ({', '.join(self.mark * len(columns))})"
        cursor.executemany(self.spelling.insert_if_absent(into), rows)

    def hang_up(self, connection: Any, cursor: Any) -> None:
        """Close the cursor first: until its last statement is reset, SQLite keeps the file open and locked.

        Otherwise that would last as long as anything refers to the cursor, such as the traceback of the error that
        caused this call.
        """
        if cursor is not None:
            cursor.close()
        connection.close()

    def is_stale(self, connection: Any) -> bool:
        """Whether the path refers to another file by now, or to none."""
        return bool(connection.is_replaced())

    def forget(self, opened: Sequence[Closable], *, in_use: int) -> None:
        """In a forked child, close what the parent had open, together with all other users of SQLite in this process.

        The parent's own locks keep the closing from touching the files. If a thread was inside SQLite at the time of
        the fork, this process cannot use SQLite: see `fencepost.sql.forked_sqlite`.
        """
        FORKED_SQLITE.settle(self.runtime.process_id(), opened, in_use=in_use)

    def refusal(self, error: Exception) -> str:
        """Say what is wrong with the file."""
        if trouble_of(error) in LACKS_TABLES:
            return f"{self.url.path} lacks tables of the ledger ({error}): run: fencepost migrate"
        return sqlite.refusal(self.url.path, error) or f"{self.product}: {error}"

    def json_table(self, alias: str, columns: Mapping[str, str]) -> str:
        """Use json_each."""
        chosen = ", ".join(f"json_extract(value, '$[{place}]') AS {name}" for place, name in enumerate(columns))
        return f"(SELECT {chosen} FROM json_each(?)) AS {alias}"  # noqa: S608 - fixed names only

    def objection(self, cursor: Cursor) -> str | None:
        """Check the version: RETURNING is needed."""
        return sqlite.version_objection()

    def insert_row(self, cursor: Cursor, table: Table, values: Mapping[str, Any]) -> bool:
        return self.execute(cursor, insert(table).values(dict(values)).on_conflict_do_nothing()).rowcount == 1

    def insert_new(self, cursor: Cursor, sql: str, parameters: Parameters) -> int | None:
        cursor.execute(f"{sql}{self.unless_there('run', *ORIGIN_KEY)} RETURNING id", parameters)
        rows = cursor.fetchall()
        return rows[0][0] if rows else None

    def evidence(self, cursor: Cursor) -> dict[str, str]:
        """Return the inode number. The device number is left out: it may change when the machine restarts."""
        found = sqlite.identity_of(self.url.path)
        return {} if found is None else {"file": str(found[1])}

    def top_id(self, cursor: Cursor) -> int | None:
        """Read SQLite's counter."""
        cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (self.table("run"),))
        row = cursor.fetchone()
        return 0 if row is None else int(row[0])

    def raise_ids(self, cursor: Cursor, to: int) -> None:
        """Advance SQLite's counter."""
        name = self.table("run")
        cursor.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (to, name))
        if cursor.rowcount == 0:
            cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, to))

    def unless_there(self, table: str, key: str, where: str = "") -> str:
        """Return ON CONFLICT for this key only."""
        return f" ON CONFLICT ({key}){where and ' WHERE '}{where} DO NOTHING"


def _refuse_other_names(path: Path) -> None:
    """Refuse a file with hard links: SQLite finds its log, and the ledger its leases, by the name of the file."""
    try:
        names = path.stat().st_nlink
    except OSError:
        return
    if names > 1:
        raise LedgerRefused(
            f"{path} has {names} names (hard links), and SQLite would keep a log for each: what is written under one "
            "is lost under the other. Keep one name, and replace all others with symbolic links to it"
        )
