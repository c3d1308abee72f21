"""SQLite as a `Backend`: the file of leases, its location, and the boot it belongs to."""

# ruff: noqa: S608 - table names are checked identifiers (see options), all values are parameters

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from fencepost.core import mounts
from fencepost.core.runtime import Runtime
from fencepost.errors import FencepostError, StoreRefused, UnsafeStore
from fencepost.leases.store import LedgerMark
from fencepost.leases.stores.sql import schema
from fencepost.leases.stores.sql.backend import LeaseConnection, transaction
from fencepost.leases.stores.sql.options import LeaseTables
from fencepost.leases.stores.sql.sqlite_connection import SqliteConnection
from fencepost.leases.stores.sql.statements import Statements, Words, statements
from fencepost.sql import sqlite
from fencepost.sql.forked_sqlite import FORKED_SQLITE
from fencepost.sql.troubles import Trouble, trouble_of

RISK = "network-filesystem"
_NOW = "CAST((fencepost_now() - {}) * 1000000 AS INTEGER)"
WORDS = Words(
    now=_NOW.format(0),
    wall="fencepost_wall()",
    greatest="max",
    big="INTEGER",
    for_update="",
    by_name="l.name",
)
_MOUNTINFO = Path("/proc/self/mountinfo")
_TIME_OFFSETS = Path("/proc/self/timens_offsets")
_TIME_NAMESPACES = (Path("/proc/self/ns/time"), Path("/proc/self/ns/time_for_children"))


class SqliteBackend:
    """One file next to the application's database."""

    is_file = True
    driver_errors = sqlite.ERRORS

    def __init__(self, path: Path, tables: LeaseTables, runtime: Runtime, *, accepts_network: bool) -> None:
        self.path = path
        self._beside = path.with_name(f"{path.stem.removesuffix('.leases')}{path.suffix}")
        self.product = f"SQLite file {path}"
        self.sql: Statements = statements(replace(WORDS, now=_NOW.format(boot_offset_s())), tables)
        self._tables = tables
        self._boot_table = f"{tables.index}_boot"
        self._runtime = runtime
        self._accepts_network = accepts_network

    def connect(self, timeout_s: float) -> SqliteConnection:
        """Open the file; create its tables if it is new; end the sessions of an earlier boot of the machine."""
        connection = SqliteConnection(self.path, self.sql, self._runtime, timeout_s=timeout_s)
        try:
            self._ensure_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def refusal(self, error: Exception) -> FencepostError | None:
        """Return the refusal for an error that a retry cannot resolve."""
        objection = sqlite.refusal(self.path, error)
        return None if objection is None else StoreRefused(objection)

    def check_place(self) -> tuple[str, ...]:
        """Refuse an impossible or unsafe location, before the file is opened."""
        folder = self.path.parent
        if not folder.is_dir():
            raise StoreRefused(f"the folder {folder} for {self.path.name} does not exist; create it first")
        if not _has_own_time():
            raise StoreRefused(
                f"this process has unshared its time namespace and has not started a new process in it, so the times "
                f"in {self.path.name} cannot be compared; fork first (unshare --time --fork)"
            )
        if (objection := sqlite.version_objection()) is not None:
            raise StoreRefused(objection)
        return self._check_file_system(folder.resolve()) + self._check_mount()

    def prepare(self, connection: LeaseConnection) -> tuple[str, ...]:
        """Check the tables, which `connect` has created."""
        connection.rows(self.sql.history, (0,))
        return ()

    def noted(self, connection: LeaseConnection, ledger: LedgerMark) -> tuple[str, LedgerMark]:
        """Record the ledger's progress, if it is another ledger or has advanced; return the previous record."""
        place = f"{self._tables.index}_place"
        [(identity, *before)] = connection.rows(f"SELECT id, ledger_id, era, beat_us FROM {place}")
        known = LedgerMark(*before)
        if ledger.ledger_id is not None and (known.ledger_id != ledger.ledger_id or known[1:] < ledger[1:]):
            connection.change(f"UPDATE {place} SET ledger_id = %s, era = %s, beat_us = %s", tuple(ledger))
        return identity, known

    def announce(self, connection: LeaseConnection, names: Sequence[str]) -> None:
        """Nothing to do, because waiters poll."""

    def forget(self, idle: Sequence[LeaseConnection], *, in_use: int) -> None:
        """In a forked child: close the parent's connections, together with all other parts that use SQLite.

        While the parent is alive, its own locks protect the files from effects of the closing. If a thread was inside
        SQLite at the fork, this process must not use SQLite: see `fencepost.sql.forked_sqlite`.
        """
        FORKED_SQLITE.settle(self._runtime.process_id(), idle, in_use=in_use)

    def _check_file_system(self, folder: Path) -> tuple[str, ...]:
        try:
            file_system = mounts.file_system_of(PurePosixPath(folder), _MOUNTINFO.read_text())
        except OSError:
            return ()
        if not mounts.is_network(file_system):
            return ()
        sentence = f"{self.path} is on {file_system}, a network file system, where SQLite's locks are not safe"
        if not self._accepts_network:
            raise UnsafeStore(RISK, f"{sentence}; use a local disk, or a database server")
        return (sentence,)

    def _check_mount(self) -> tuple[str, ...]:
        """Warn of a database that is mounted without its folder: other containers do not see the files next to it."""
        try:
            is_alone = mounts.is_mount_point(PurePosixPath(self._beside), _MOUNTINFO.read_text())
        except OSError:
            return ()
        if not is_alone:
            return ()
        return (
            f"{self._beside} is mounted alone: its leases ({self.path.name}) and SQLite's log are kept beside it, "
            "where other containers do not see them; mount the folder instead",
        )

    def _ensure_tables(self, connection: SqliteConnection) -> None:
        boot = (self._runtime.boot_id(),)
        try:
            if connection.rows(f"SELECT b.id FROM {self._boot_table} b, {self._tables.index}_place") == [boot]:
                return
        except self.driver_errors as error:
            if trouble_of(error) is not Trouble.NO_TABLE:
                raise
        with transaction(connection):
            for statement in schema.sqlite(self._tables, self._boot_table):
                connection.change(statement)
            connection.change(
                f"INSERT INTO {self._tables.index}_place (only_one, id, era, beat_us) VALUES (1, %s, 0, 0) "
                "ON CONFLICT DO NOTHING",
                (self._runtime.new_id(),),
            )
            if connection.rows(f"SELECT id FROM {self._boot_table}") != [boot]:
                self._bury_all(connection)
                connection.change(f"DELETE FROM {self._boot_table}")
                connection.change(f"INSERT INTO {self._boot_table} (id) VALUES (%s)", boot)

    def _bury_all(self, connection: SqliteConnection) -> None:
        """End every session: its process ended with the last boot, and its times have no meaning in this one."""
        connection.change(f"{self.sql.past} WHERE session_id IS NOT NULL", ("expired",))
        connection.change(f"{self.sql.free}, kept_until = 0")
        connection.change(f"DELETE FROM {self._tables.session}")


def boot_offset_s() -> int | float:
    """Return how far this process's CLOCK_BOOTTIME is ahead of the machine's.

    A container may have its own time namespace. Without this correction, live sessions would look expired there.
    """
    try:
        lines = _TIME_OFFSETS.read_text().splitlines()
    except OSError:
        return 0  # a kernel without time namespaces
    parts = next((line.split() for line in lines if line.startswith("boottime")), ["", "0", "0"])
    seconds, nanoseconds = int(parts[1]), int(parts[2])
    return seconds + nanoseconds / 1e9 if nanoseconds else seconds


def _has_own_time() -> bool:
    """Whether the offsets apply to this process, not only to the processes that it will start."""
    try:
        ours, children = (path.stat().st_ino for path in _TIME_NAMESPACES)
    except OSError:
        return True
    return ours == children
