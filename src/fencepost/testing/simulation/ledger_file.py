"""The real SQLite file that simulations of one process use one after the other.

It lies in memory where the system has a place for that (``/dev/shm``), is migrated once, and emptied between two
simulations; connections and their prepared statements are kept. Two triggers write down every change of a run's state
in the order of commits. One table takes the effects of jobs, and with each whose run it was at that moment.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

from fencepost.ledger.ledger import open_ledger
from fencepost.threaded import ThreadedRuntime

_FIXED = ("fencepost_version", "fencepost_identity")
_IDENTITY = "5eed" * 8
_EXTRA = """
CREATE TABLE sim_effect (
  id INTEGER PRIMARY KEY AUTOINCREMENT, resource TEXT NOT NULL, key TEXT NOT NULL, token INTEGER NOT NULL,
  grant_id TEXT NOT NULL, run_id INTEGER, holder_token INTEGER
);
CREATE TABLE sim_transition (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run_id INTEGER NOT NULL, before TEXT, after TEXT NOT NULL, token INTEGER
);
CREATE TRIGGER sim_written AFTER INSERT ON sim_effect BEGIN
  UPDATE sim_effect SET holder_token = (SELECT token FROM fencepost_run WHERE id = new.run_id AND state = 'running')
  WHERE id = new.id;
END;
CREATE TRIGGER sim_made AFTER INSERT ON fencepost_run BEGIN
  INSERT INTO sim_transition (run_id, before, after, token) VALUES (new.id, NULL, new.state, new.token);
END;
CREATE TRIGGER sim_moved AFTER UPDATE OF state ON fencepost_run WHEN old.state <> new.state OR old.token <> new.token
BEGIN
  INSERT INTO sim_transition (run_id, before, after, token) VALUES (new.id, old.state, new.state, new.token);
END;
"""


class LedgerFile:
    """The file, and connections to it that nobody uses at the moment."""

    def __init__(self) -> None:
        place = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
        parent = place if os.access(place, os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="fencepost-simulation-", dir=parent))
        self._process_id = os.getpid()
        atexit.register(self.remove)
        self.path = self._folder / "ledger.db"
        self._idle: list[sqlite3.Connection] = []
        self._migrate()
        keeper = self.open()
        self._tables = [
            row[0]
            for row in keeper.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
            if row[0] not in _FIXED and not row[0].startswith("sqlite_") and not row[0].endswith("_version")
        ]
        self._first = {
            table: rows
            for table in self._tables
            if (rows := keeper.execute(f"SELECT * FROM {table}").fetchall())  # noqa: S608
        }
        self.give_back(keeper)

    @property
    def url(self) -> str:
        """The ledger's URL."""
        return f"sqlite:///{self.path}"

    def take(self) -> sqlite3.Connection:
        """Return a connection; it waits for nobody."""
        return self._idle.pop() if self._idle else self.open()

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Take it back; what it had begun is rolled back."""
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        self._idle.append(connection)

    def open(self) -> sqlite3.Connection:
        """Open the file as the ledger does, but for the disk."""
        connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, cached_statements=1024)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def empty(self) -> None:
        """Make it as it was."""
        connection = self.take()
        connection.execute("BEGIN IMMEDIATE")
        for table in self._tables:
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
            for row in self._first.get(table, ()):
                marks = ", ".join("?" * len(row))
                connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608 - as above
        connection.execute("DELETE FROM sqlite_sequence")
        connection.execute("UPDATE fencepost_identity SET id = ?", (_IDENTITY,))
        connection.execute("COMMIT")
        self.give_back(connection)

    def _migrate(self) -> None:
        ledger = open_ledger(f"sqlite:///{self.path}", ThreadedRuntime())
        ledger.migrate()
        ledger.close()
        connection = self.open()
        connection.executescript(_EXTRA)
        connection.close()

    def remove(self) -> None:
        """Remove the file, unless it is a parent's."""
        if os.getpid() == self._process_id:
            shutil.rmtree(self._folder, ignore_errors=True)


_files: dict[int, LedgerFile] = {}


def ledger_file() -> LedgerFile:
    """Return this process's file."""
    found = _files.get(os.getpid())
    if found is None:
        found = _files[os.getpid()] = LedgerFile()
    return found


def remove_file() -> None:
    """Remove this process's file, if there is one."""
    found = _files.pop(os.getpid(), None)
    if found is not None:
        found.remove()
