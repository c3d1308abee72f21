"""Connections of simulated processes to the real SQLite file: every statement takes virtual time, and may fail.

A process waits before each statement, and once more after one that others can see (a COMMIT, a statement outside of a
transaction). Faults happen at these points: the process dies, is paused, the ledger goes away, the
answer is lost. SQLite itself never waits, for all processes share one thread; a process that finds the file locked
waits here, in virtual time, until its holder is done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from greenlet import GreenletExit
from sqlalchemy.sql import ClauseElement

from fencepost.ledger.dialects.dialect import Parameters
from fencepost.ledger.dialects.sqlite import SqliteDialect
from fencepost.ledger.urls import LedgerUrl
from fencepost.sql.troubles import FileReplacedError
from fencepost.testing.simulation.hub import GreenTask, Hub, Process
from fencepost.testing.simulation.ledger_file import SimFile
from fencepost.testing.simulation.runtime import SimRuntime
from fencepost.testing.simulation.weather import AFTER, BEFORE, BEGIN, COMMIT, LATE, LEDGER, SLOW, STALL, Shot, Weather

_LATE_BY_S = 0.5  # at most, after its sender has given up: half the shortest ttl, so that leases end before and after
_MOMENTS = {"BEGIN": BEGIN, "BEGIN IMMEDIATE": BEGIN, "COMMIT": COMMIT}
_READ_ONLY = {"PRAGMA query_only = ON": True, "PRAGMA query_only = OFF": False}
_COMPILED: dict[Any, Any] = {}


class SimulatedServer:
    """A file as a server that processes talk to. `name` is what the weather knows it by."""

    def __init__(
        self, hub: Hub, file: SimFile, weather: Weather, *, latency_s: float, timeout_s: float, name: str = LEDGER
    ) -> None:
        self.hub = hub
        self.name = name
        self.file = file
        self.weather = weather
        self.latency_s = latency_s
        self.timeout_s = timeout_s
        self.is_instant = False
        self.evidence = 0  # the identity of the database
        self.statements = 0
        self.waiting: list[tuple[GreenTask, int]] = []
        self._open: list[SimConnection] = []

    def connect(self, process: Process, slot: int, use: str = LEDGER) -> SimConnection:
        """Let a process connect. `use` distinguishes writes of jobs from those of the engine."""
        self.pass_time()
        if self.weather.is_away(slot, self.name):
            self.hang()
            raise _broken()
        connection = SimConnection.__new__(SimConnection)
        connection.begin_life(self, process, slot, use)
        self._open.append(connection)
        return connection

    def drop_all(self, process: Process | None = None, slot: int | None = None) -> None:
        """Abort the connections of one process, of one slot, or of all."""
        for connection in list(self._open):
            if process in (None, connection.process) and slot in (None, connection.slot):
                connection.abort()

    def forget(self, connection: SimConnection) -> None:
        """Note that a connection is closed."""
        if connection in self._open:
            self._open.remove(connection)

    @property
    def is_busy(self) -> bool:
        """Whether a process that is not paused waits for an answer, or is within a transaction."""
        return any(
            (each.in_transaction or each.is_asking) and not (each.process.is_dead or each.process.is_paused)
            for each in self._open
        )

    def pass_time(self) -> None:
        """Let a message travel."""
        if self.is_instant:
            return
        hub = self.hub
        draw = hub.dice.random()
        hub.wait(draw * self.latency_s if draw < 0.98 else draw * 20 * self.latency_s)

    def stall(self, process: Process, length_s: float) -> None:
        """Stop the calling process at once, and continue it after a while."""
        hub = self.hub

        def go_on() -> None:
            hub.wait(length_s)
            hub.resume(process)

        hub.pause(process)
        hub.spawn(Process("world", 0), "stalled", go_on)
        hub.wait(length_s)

    def free(self) -> None:
        """Let one waiter retry, since the file was unlocked."""
        while self.waiting:
            task, turn = self.waiting.pop(self.hub.dice.randrange(len(self.waiting)))
            if turn == task.turn and not task.process.is_dead:
                self.hub.wake(task, turn)
                if not task.process.is_paused:
                    return

    def is_too_slow(self, shot: Shot) -> bool:
        """Whether its sender gives up before it is answered."""
        return shot.how == SLOW and shot.length_s >= self.timeout_s

    def hang(self) -> None:
        """Wait for nothing."""
        if not self.is_instant:
            self.hub.wait(self.timeout_s * self.hub.dice.random())


class SimConnection(sqlite3.Connection):
    """A connection as the ledger and SQLAlchemy know it. All it does is passed on to the file's connections.

    It has one of those to itself for the duration of a transaction. All statements outside of transactions use the
    one that was used last, whose cache is still valid.
    """

    def begin_life(self, server: SimulatedServer, process: Process, slot: int, use: str) -> None:
        """Instead of opening something."""
        self.server = server
        self.process = process
        self.slot = slot
        self.use = use
        self.identity = None
        self.is_asking = False
        self.is_open = True
        self.is_read_only = False
        self.raw: sqlite3.Connection | None = None

    # -- what drivers offer ------------------------------------------------------------------------------------------

    def cursor(self, *_: Any) -> Any:
        return SimCursor(self)

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        self.is_read_only = _READ_ONLY.get(sql, self.is_read_only)
        return SimCursor(self).execute(sql, parameters)

    def commit(self) -> None:
        if self.in_transaction:
            self.perform("COMMIT", _commit)

    def rollback(self) -> None:
        if self.in_transaction:
            self._use(_roll_back)
            self.server.free()

    def close(self) -> None:
        self.abort()

    def interrupt(self) -> None:
        """Nothing is ever under way in another thread."""

    def create_function(self, *_: Any, **__: Any) -> None:
        """Accept functions of SQLAlchemy, which are not used here."""

    @property
    def in_transaction(self) -> bool:
        return self.raw is not None and self.raw.in_transaction

    @property
    def isolation_level(self) -> Any:
        return None

    @isolation_level.setter
    def isolation_level(self, level: Any) -> None:
        pass

    # -- what happens ------------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Break: roll back what was begun. The next use raises an error."""
        if not self.is_open:
            return
        self.is_open = False
        was_writing = self.in_transaction
        raw, self.raw = self.raw, None
        if raw is not None:
            if self.is_read_only:
                raw.execute("PRAGMA query_only = OFF")
            self.server.file.give_back(raw)
        self.server.forget(self)
        if was_writing:
            self.server.free()

    def perform(self, sql: str, do: Callable[[sqlite3.Connection], object]) -> None:
        """Send a statement, execute it by `do`, and wait for the answer."""
        server = self.server
        if server.hub.is_over:
            raise GreenletExit
        server.statements += 1
        self.is_asking = True
        try:
            shot = server.weather.shot(self.slot, self.use, _MOMENTS.get(sql, ""))
            self._travel(shot)
            if shot is not None:
                self._be_hit(shot, sql)
            was_begun = self.in_transaction
            try:
                self._use(do)
            except sqlite3.OperationalError as error:
                self._patiently(do, error)
            is_seen = not self.in_transaction
            if was_begun and is_seen:
                server.free()
            if is_seen or shot is not None:
                server.pass_time()
            if not self.is_open or (shot is not None and (shot.how == AFTER or server.is_too_slow(shot))):
                self._fail()
        finally:
            self.is_asking = False

    def _travel(self, shot: Shot | None) -> None:
        server = self.server
        if server.weather.is_away(self.slot, server.name):
            self.abort()
            server.hang()
            raise _broken()
        server.pass_time()
        if shot is not None and shot.how == SLOW:
            server.hub.wait(min(shot.length_s, server.timeout_s))
        if shot is not None and shot.how == STALL:
            server.stall(self.process, shot.length_s)

    def _be_hit(self, shot: Shot, sql: str) -> None:
        self._check_open()
        if shot.how == BEFORE:
            self._fail()
        if shot.how == LATE:
            self._fail_and_happen(is_commit=sql == "COMMIT")

    def _check_open(self) -> None:
        if not self.is_open:
            raise _broken()

    def _use(self, do: Callable[[sqlite3.Connection], object]) -> None:
        """Do something on a connection of the file, and keep that until its transaction has ended."""
        self._check_open()
        raw = self.raw
        if raw is None:
            raw = self.raw = self.server.file.take()
        try:
            do(raw)
        finally:
            if not (raw.in_transaction or self.is_read_only):
                self.raw = None
                self.server.file.give_back(raw)

    def _fail(self) -> None:
        self.abort()
        raise _broken() if self.server.hub.dice.random() < 0.5 else _disk_error()

    def _fail_and_happen(self, *, is_commit: bool) -> None:
        """Let a COMMIT arrive after its sender has given up; the sender undoes anything else when it gives up."""
        server, raw = self.server, self.raw
        if is_commit and raw is not None:
            self.is_open, self.raw = False, None
            server.forget(self)

            def commit() -> None:
                server.hub.wait(server.timeout_s + server.hub.dice.random() * _LATE_BY_S)
                _commit(raw)
                server.file.give_back(raw)
                server.free()

            server.hub.spawn(Process("late", 0), "late commit", commit)
        server.hub.wait(server.timeout_s)
        self._fail()

    def _patiently(self, do: Callable[[sqlite3.Connection], object], error: sqlite3.OperationalError) -> None:
        """Retry each time the file is unlocked, until it is free or the timeout of the call has passed."""
        hub = self.server.hub
        give_up_at = hub.now + self.server.timeout_s
        while True:
            is_busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
            if not is_busy or hub.now >= give_up_at or self.server.is_instant:
                raise error
            hub.wait(give_up_at - hub.now, about=self.server.waiting)
            try:
                self._use(do)
            except sqlite3.OperationalError as again:
                error = again
            else:
                return


class SimCursor:
    """A cursor that has fetched everything when `execute` returns."""

    __slots__ = (
        "__weakref__",
        "_next",
        "_parameters",
        "_rows",
        "_sql",
        "arraysize",
        "connection",
        "description",
        "lastrowid",
        "row_factory",
        "rowcount",
    )

    def __init__(self, connection: SimConnection) -> None:
        self.connection = connection
        self.row_factory: Any = None
        self.arraysize = 1
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self._rows: list[Any] = []
        self._next = 0
        self._sql = ""
        self._parameters: Any = ()

    def execute(self, sql: str, parameters: Any = (), /) -> SimCursor:
        self._sql, self._parameters = sql, parameters
        self.connection.perform(sql, self._execute)
        return self

    def executemany(self, sql: str, rows: Any, /) -> SimCursor:
        self._sql, self._parameters = sql, list(rows)
        self.connection.perform(sql, self._executemany)
        return self

    def fetchone(self) -> Any:
        if self._next >= len(self._rows):
            return None
        self._next += 1
        return self._rows[self._next - 1]

    def fetchmany(self, size: int = 1) -> list[Any]:
        return [row for _ in range(size) if (row := self.fetchone()) is not None]

    def fetchall(self) -> Sequence[Any]:
        rows, first = self._rows, self._next
        self._rows, self._next = [], 0
        return rows[first:] if first else rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())

    def close(self) -> None:
        self._rows = []

    def setinputsizes(self, *_: Any) -> None:
        """Nothing to set."""

    def _execute(self, raw: sqlite3.Connection) -> None:
        self._fetch(raw.execute(self._sql, self._parameters))

    def _executemany(self, raw: sqlite3.Connection) -> None:
        self._fetch(raw.executemany(self._sql, self._parameters))

    def _fetch(self, cursor: sqlite3.Cursor) -> None:
        self.description = cursor.description
        self._rows = [] if self.description is None else cursor.fetchall()
        self._next = 0
        self.rowcount = cursor.rowcount
        self.lastrowid = cursor.lastrowid


class SimDialect(SqliteDialect):
    """SQLite as one simulated process reaches it. Time is the server's."""

    def __init__(
        self, url: LedgerUrl, clock: SimRuntime, *, server: SimulatedServer, process: Process, slot: int
    ) -> None:
        super().__init__(url, clock)
        self._server = server
        self._process = process
        self._slot = slot

    def dial(self, timeout_s: float | None = None) -> Any:
        """Connect to the simulated server."""
        return self._server.connect(self._process, self._slot)

    def written(self, statement: ClauseElement) -> tuple[str, Parameters]:
        """Compile a statement of one shape once: to compile takes longer than to execute, ten times a second."""
        shape = statement._generate_cache_key()
        if shape is None:
            return super().written(statement)
        compiled: Any = _COMPILED.get(shape.key)
        if compiled is None:
            compiled = _COMPILED[shape.key] = statement.compile(dialect=self.words, cache_key=shape)
        values = compiled.construct_params(extracted_parameters=shape.bindparams, _check=False)
        if "[POSTCOMPILE_" in compiled.string:  # a list, as long as it happens to be
            expanded = compiled.construct_expanded_state(values)
            return expanded.statement, tuple(expanded.positional_parameters)
        return compiled.string, tuple(values[name] for name in compiled.positiontup or ())

    def evidence(self, cursor: Any) -> dict[str, str]:
        """Return what distinguishes the database from a restored one, as the number of a file does."""
        return {"file": str(self._server.evidence)}

    def is_stale(self, connection: Any) -> bool:
        """Whether it was aborted while idle: a process notices only by using it."""
        return False


def _commit(raw: sqlite3.Connection) -> None:
    raw.execute("COMMIT")


def _roll_back(raw: sqlite3.Connection) -> None:
    raw.execute("ROLLBACK")


class GoneError(FileReplacedError, sqlite3.ProgrammingError):
    """The connection is broken: in the words by which the ledger's dialect and SQLAlchemy know that."""


def _broken() -> GoneError:
    error = GoneError("Cannot operate on a closed database. (simulated)")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


def _disk_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error (simulated)")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error
