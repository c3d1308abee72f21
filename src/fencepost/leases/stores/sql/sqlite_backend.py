"""SQLite as a `Backend`: the file of leases, its place, and the boot it belongs to."""

# ruff: noqa: S608 - table names are checked identifiers (see options), all values are parameters

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fencepost.core import mounts
from fencepost.core.forked_sqlite import FORKED_SQLITE
from fencepost.core.runtime import Runtime
from fencepost.errors import FencepostError, StoreRefused, UnsafeStore
from fencepost.leases.stores.sql import schema
from fencepost.leases.stores.sql.backend import Connection, Trouble, transaction
from fencepost.leases.stores.sql.options import Tables
from fencepost.leases.stores.sql.sqlite_connection import FileReplacedError, SqliteConnection
from fencepost.leases.stores.sql.statements import Statements, Words, statements

RISK = "network-filesystem"
WORDS = Words(
    now="CAST(fencepost_now() * 1000000 AS INTEGER)",
    wall="fencepost_wall()",
    greatest="max",
    big="INTEGER",
    for_update="",
    by_name="l.name",
)
OLDEST_VERSION = (3, 35, 0)
_MOUNTINFO = Path("/proc/self/mountinfo")
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class SqliteBackend:
    """One file beside the application's database."""

    driver_errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, path: Path, tables: Tables, runtime: Runtime, *, accepts_network: bool) -> None:
        self.path = path
        self.product = f"SQLite file {path}"
        self.sql: Statements = statements(WORDS, tables)
        self._tables = tables
        self._boot_table = f"{tables.index}_boot"
        self._runtime = runtime
        self._accepts_network = accepts_network
        self._inherited_in_use = False

    def connect(self, timeout_s: float) -> SqliteConnection:
        """Open the file; make its tables if it is new; end what an earlier boot of the machine has left."""
        if self._inherited_in_use:
            raise sqlite3.OperationalError(
                "this process was forked in the middle of a call to SQLite, whose locks do not survive that; "
                "fork before the store is used, or start the process anew (spawn)"
            )
        connection = SqliteConnection(self.path, self.sql, self._runtime, timeout_s=timeout_s)
        try:
            connection.settle()
            self._ensure_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def trouble(self, error: Exception) -> Trouble:
        """Tell a busy file from a vanished one."""
        if isinstance(error, FileReplacedError):
            return Trouble.BROKEN
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _BUSY:
            return Trouble.LATE
        return Trouble.OTHER

    def refusal(self, error: Exception) -> FencepostError | None:
        """Recognise what time will not mend."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return StoreRefused(f"{self.path} cannot be written: {error}; check the rights on it and on its folder")
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return StoreRefused(f"{self.path} is no SQLite database or is damaged: {error}; move it away")
        return None

    def check_place(self) -> tuple[str, ...]:
        """Refuse, before anything is opened, a place where the file cannot be or must not be."""
        folder = self.path.parent
        if not folder.is_dir():
            raise StoreRefused(f"the folder {folder} for {self.path.name} does not exist; create it first")
        if sqlite3.sqlite_version_info < OLDEST_VERSION:
            raise StoreRefused(f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or later is needed")
        return self._check_file_system(folder.resolve())

    def prepare(self, connection: Connection) -> tuple[str, ...]:
        """Nothing more: connecting has made the tables."""
        connection.rows(self.sql.history, (0,))
        return ()

    def announce(self, connection: Connection, names: Sequence[str]) -> None:
        """Nobody needs to be told: who waits, polls."""

    def forget(self, idle: Sequence[Connection], *, in_use: int) -> None:
        """Close, in a forked child, what the parent had open, together with all others that use SQLite.

        As long as the parent lives, its own locks keep the closing from touching the files. If somebody was inside
        SQLite at the fork, this process has to do without it: see `fencepost.core.forked_sqlite`.
        """
        self._inherited_in_use = FORKED_SQLITE.settle(self._runtime.process_id(), idle, in_use=in_use)

    def _check_file_system(self, folder: Path) -> tuple[str, ...]:
        try:
            file_system = mounts.file_system_of(PurePosixPath(folder), _MOUNTINFO.read_text())
        except OSError:
            return ()
        if not mounts.is_network(file_system):
            return ()
        sentence = f"{self.path} lies on {file_system}, a network file system, where SQLite's locks do not hold"
        if not self._accepts_network:
            raise UnsafeStore(RISK, f"{sentence}; use a local disk, or a database server")
        return (sentence,)

    def _ensure_tables(self, connection: SqliteConnection) -> None:
        boot = (self._runtime.boot_id(),)
        try:
            if connection.rows(f"SELECT id FROM {self._boot_table}") == [boot]:
                return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:  # that is: no such table
                raise
        with transaction(connection):
            for statement in schema.sqlite(self._tables, self._boot_table):
                connection.change(statement)
            if connection.rows(f"SELECT id FROM {self._boot_table}") != [boot]:
                self._bury_all(connection)
                connection.change(f"DELETE FROM {self._boot_table}")
                connection.change(f"INSERT INTO {self._boot_table} (id) VALUES (%s)", boot)

    def _bury_all(self, connection: SqliteConnection) -> None:
        """End every session: its process died with the machine's last boot, and its times mean nothing in this one."""
        connection.change(f"{self.sql.past} WHERE session_id IS NOT NULL", ("expired",))
        connection.change(f"{self.sql.free}, kept_until = 0")
        connection.change(f"DELETE FROM {self._tables.session}")
