"""SQLite: opens a file, and checks whether it is still the same one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fencepost.sql.forked_sqlite import FORKED_SQLITE, LOST
from fencepost.sql.troubles import sqlite_code

ERRORS: tuple[type[Exception], ...] = (sqlite3.Error,)
OLDEST_VERSION = (3, 35, 0)  # the first version with RETURNING
_STATEMENTS_KEPT = 512  # prepared statements: more than the ledger has
_TRIES_TO_SWITCH = 20  # each fails only if another process has just written to the new file
_MEANINGS = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder exists, and the rights on both",
    sqlite3.SQLITE_READONLY: "cannot be written; check the rights on it and on its folder",
    sqlite3.SQLITE_PERM: "may not be opened; check the rights on it and on its folder",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database; move it away, or name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a backup",
}

Identity = tuple[int, int]
"""Device and number of a file."""


class FileConnection(sqlite3.Connection):
    """A connection that remembers which file it opened, because the path may lead to another file later."""

    path: Path
    identity: Identity | None = None

    def is_replaced(self) -> bool:
        """Whether the path now leads to another file, or to none."""
        return identity_of(self.path) != self.identity


def opened(path: Path, timeout_s: float, *, keeps_journal_mode: bool = False) -> FileConnection:
    """Open a file. Reads never wait (WAL); writes wait for each other, up to `timeout_s`; commits are durable.

    Transactions begin and end with explicit statements. `keeps_journal_mode`: the file belongs to another application.
    """
    refuse_if_lost()
    connection = sqlite3.connect(
        path,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS_KEPT,
        factory=FileConnection,
    )
    connection.path = path
    try:
        if not keeps_journal_mode:
            _use_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.identity = identity_of(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch a file to WAL mode, which is stored in the file; wait for other writers.

    SQLite itself does not wait here: if two processes open a new file at once, one gets an error immediately. BEGIN
    does wait, up to the timeout, and by then the other process has usually made the switch.
    """
    for _ in range(_TRIES_TO_SWITCH):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if sqlite_code(error) != sqlite3.SQLITE_BUSY:
                raise
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        else:
            return
    connection.execute("PRAGMA journal_mode = WAL").fetchall()


def refuse_if_lost() -> None:
    """Raise an error in a process where SQLite would wait for ever; see `fencepost.sql.forked_sqlite`."""
    if FORKED_SQLITE.is_lost:
        raise sqlite3.OperationalError(LOST)


def opened_for_reading(path: Path | str, timeout_s: float) -> sqlite3.Connection:
    """Open an existing file for reading: nothing is created or changed."""
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=timeout_s)


def refusal(path: Path, error: Exception) -> str | None:
    """Return what is wrong with a file that cannot be used; None if the error has another meaning."""
    meaning = _MEANINGS.get(sqlite_code(error))
    return None if meaning is None else f"{path} {meaning}: {error}"


def version_objection() -> str | None:
    """Return why this SQLite library cannot be used; None if it can."""
    if sqlite3.sqlite_version_info >= OLDEST_VERSION:
        return None
    return f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or later is needed"


def identity_of(path: Path) -> Identity | None:
    """Return the identity of the file at a path; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
