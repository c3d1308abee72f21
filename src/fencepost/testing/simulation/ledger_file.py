"""The real SQLite files that simulations of one process use one after the other: the ledger, and one for effects alone.

They lie in memory where the system has a place for that (``/dev/shm``), are migrated once, and emptied between two
simulations; connections and their prepared statements are kept. Two triggers write down every change of a run's state
in the order of commits. One table takes the effects of jobs, and with each whose run it was at that moment; one has the
input of bulk work.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fencepost.effects.installing import install, open_database
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.migrations import migrate
from fencepost.threaded import ThreadedRuntime

_FIXED = ("fencepost_version",)
_IDENTITY = "5eed" * 8
_EFFECTS = """
CREATE TABLE sim_effect (
  id INTEGER PRIMARY KEY AUTOINCREMENT, resource TEXT NOT NULL, key TEXT NOT NULL, token INTEGER NOT NULL,
  grant_id TEXT NOT NULL, run_id INTEGER, holder_token INTEGER, CHECK (token >= 0)
);
CREATE TABLE sim_input (id INTEGER PRIMARY KEY, is_settled INTEGER NOT NULL DEFAULT 0);
"""
_EXTRA = """
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
_ASIDE = """
CREATE TABLE sim_gone_run AS SELECT * FROM fencepost_run WHERE false;
CREATE TABLE sim_gone_attempt AS SELECT * FROM fencepost_attempt WHERE false;
CREATE TRIGGER sim_run_gone BEFORE DELETE ON fencepost_run BEGIN
  INSERT INTO sim_gone_run SELECT * FROM fencepost_run WHERE id = old.id;
END;
CREATE TRIGGER sim_attempt_gone BEFORE DELETE ON fencepost_attempt BEGIN
  INSERT INTO sim_gone_attempt SELECT * FROM fencepost_attempt WHERE run_id = old.run_id AND number = old.number;
END;
"""


class SimFile:
    """A file, and its idle connections."""

    def __init__(self, name: str, made_before: Path | None = None) -> None:
        """Make it; as a copy of one that a parent made before, if there is one, which takes no time."""
        place = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
        parent = place if os.access(place, os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="fencepost-simulation-", dir=parent))
        self._process_id = os.getpid()
        atexit.register(self.remove)
        self.path = self._folder / f"{name}.db"
        self.pristine = self._folder / "pristine.db"
        self._idle: list[sqlite3.Connection] = []
        self.now_us: Callable[[], int] = lambda: 0  # what SQL statements read as the time
        self._begin(made_before)
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

    def _begin(self, made_before: Path | None) -> None:
        if made_before is not None and made_before.exists():
            shutil.copy(made_before, self.path)
        else:
            self._make()
        with closing(self.open()) as connection:
            connection.execute("VACUUM INTO ?", (str(self.pristine),))

    @property
    def url(self) -> str:
        """Its URL."""
        return f"sqlite:///{self.path}"

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for reading."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def take(self) -> sqlite3.Connection:
        """Return a connection that never waits for a lock: the one that was used last, for the sake of its cache."""
        return self._idle.pop() if self._idle else self.open()

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Take it back; what it had begun is rolled back."""
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        self._idle.append(connection)

    def open(self) -> sqlite3.Connection:
        """Open the file as the ledger does, but for the disk, and with its locks kept in this process (unix-excl)."""
        uri = f"{self.path.as_uri()}?vfs=unix-excl"
        connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, cached_statements=1024)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = OFF")
        connection.create_function("julianday", 1, lambda _: 2440587.5 + self.now_us() / 86_400e6)
        return connection

    def empty(self) -> None:
        """Reset it to its new state."""
        connection = self.take()
        connection.execute("BEGIN IMMEDIATE")
        for table in self._tables:
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
            for row in self._first.get(table, ()):
                marks = ", ".join("?" * len(row))
                connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608 - as above
        connection.execute("DELETE FROM sqlite_sequence")
        self._put_right(connection)
        connection.execute("COMMIT")
        self.give_back(connection)

    def fill(self, keys: Iterable[int]) -> None:
        """Put these into the input of bulk work."""
        connection = self.take()
        connection.executemany("INSERT INTO sim_input (id) VALUES (?)", [(key,) for key in keys])
        self.give_back(connection)

    def _make(self) -> None:
        raise NotImplementedError

    def _put_right(self, connection: sqlite3.Connection) -> None:
        """Set what is drawn anew in each file."""

    def remove(self) -> None:
        """Remove the file, unless it is a parent's."""
        if os.getpid() == self._process_id:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _execute(self, script: str) -> None:
        connection = self.open()
        connection.executescript(script)
        connection.close()


class LedgerFile(SimFile):
    """The ledger."""

    def __init__(self, made_before: Path | None = None) -> None:
        super().__init__("ledger", made_before)

    def _make(self) -> None:
        ledger = open_ledger(self.url, ThreadedRuntime())
        migrate(ledger)
        ledger.close()
        self._execute(_EFFECTS + _EXTRA)

    def _put_right(self, connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE fencepost_identity SET id = ?", (_IDENTITY,))


class LifeFile(LedgerFile):
    """The ledger of a life: what is pruned is kept aside, to be checked at the end."""

    _number = 0

    def _make(self) -> None:
        super()._make()
        self._execute(_ASIDE)

    def _put_right(self, connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE fencepost_identity SET id = ?", (f"{self._number}" + _IDENTITY[1:],))


class SecondLifeFile(LifeFile):
    """Another ledger beside it."""

    _number = 2


class EffectsFile(SimFile):
    """Another database than the ledger, with the tables of effects."""

    def __init__(self, made_before: Path | None = None) -> None:
        super().__init__("effects", made_before)

    def _make(self) -> None:
        database = open_database(self.url, ThreadedRuntime())
        install(database)
        database.close()
        self._execute(_EFFECTS)


Kind = Callable[[Path | None], SimFile]
_files: dict[tuple[int, Kind], SimFile] = {}


def ledger_file() -> SimFile:
    """Return this process's ledger."""
    return _file(LedgerFile)


def life_files() -> tuple[SimFile, SimFile]:
    """Return this process's two ledgers of lives."""
    return _file(LifeFile), _file(SecondLifeFile)


def effects_file() -> SimFile:
    """Return this process's file for effects alone."""
    return _file(EffectsFile)


def _file(kind: Kind) -> SimFile:
    key = os.getpid(), kind
    found = _files.get(key)
    if found is None:
        of_parent = next((file.pristine for (_, other), file in _files.items() if other is kind), None)
        found = _files[key] = kind(of_parent)
    return found


def remove_files() -> None:
    """Remove this process's files, if there are any."""
    for key in [key for key in _files if key[0] == os.getpid()]:
        _files.pop(key).remove()
