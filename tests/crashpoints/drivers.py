"""Makes every round trip of the three drivers a point, whatever library it is made through.

A connection that breaks is really broken: its socket is shut down, and the error is the driver's own. SQLite has no
connection that could break; there a statement fails as on a disk that does, and the transaction stays open until
whoever began it ends it.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, TypeVar
from unittest import mock

import psycopg
import pymysql
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus
from pymysql.constants import CR

from fencepost.fence.sources import quick
from fencepost.leases.stores.sql import psycopg_connection
from fencepost.ledger.dialects import postgres as ledger_postgres
from tests.crashpoints.points import POINTS

T = TypeVar("T")

COMMIT, ROLLBACK, CONNECT = "COMMIT", "ROLLBACK", "(connect)"


@contextmanager
def watched() -> Iterator[None]:
    """Let all round trips pass the points from now on."""
    patches = [*_psycopg(), *_pymysql(), *_sqlite()]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


class Dialling:
    """A connection that is not there yet."""

    def __init__(self, refused: Callable[[], Exception]) -> None:
        self._refused = refused

    def error(self, trip: Callable[[], T]) -> T:
        raise self._refused()

    def lost(self, trip: Callable[[], T]) -> T:
        made: Any = trip()
        if made is not None:
            made.close()
        raise self._refused()

    killed = error


# -- psycopg


class PsycopgLink:
    """A connection of psycopg's."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw = raw

    def error(self, trip: Callable[[], T]) -> T:
        self._cut()
        return trip()

    def lost(self, trip: Callable[[], T]) -> T:
        trip()
        self._cut()
        if self.raw.pgconn.pipeline_status == PipelineStatus.OFF:
            self.raw.pgconn.exec_(b"SELECT 1")  # now it knows that it is broken
        raise psycopg.OperationalError("consuming input failed: server closed the connection unexpectedly")

    def killed(self, trip: Callable[[], T]) -> T:
        with psycopg.connect(self.raw.info.dsn, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (self.raw.info.backend_pid,))
        return trip()

    def _cut(self) -> None:
        _shut(self.raw.pgconn.socket)


class QuickLink(PsycopgLink):
    """The same where libpq is asked directly: errors are results."""

    def lost(self, trip: Callable[[], T]) -> T:
        trip()
        self._cut()
        result: Any = self.raw.pgconn.exec_(b"SELECT 1")
        return result


def _psycopg() -> Iterator[Any]:
    for kind in (psycopg.Connection, ledger_postgres.BoundedPsycopg, psycopg_connection.BoundedPsycopg):
        yield mock.patch.object(kind, "wait", _passing_wait(kind.wait))
    yield mock.patch.object(psycopg.Cursor, "execute", _labelled(psycopg.Cursor.execute))
    for word in (COMMIT, ROLLBACK):
        call = getattr(psycopg.Connection, word.lower())
        yield mock.patch.object(psycopg.Connection, word.lower(), _labelled_end(word, call))
    connect = psycopg.Connection.connect.__func__  # type: ignore[attr-defined]
    yield mock.patch.object(psycopg.Connection, "connect", classmethod(_passing_connect(connect)))
    yield mock.patch.object(psycopg, "connect", partial(_passing_connect(connect), psycopg.Connection))
    yield mock.patch.object(quick, "_sent", _passing_sent)


def _passing_connect(connect: Any) -> Any:
    def passing(kind: Any, *arguments: Any, **options: Any) -> Any:
        return POINTS.passes(CONNECT, _POSTGRES, lambda: connect(kind, *arguments, **options))

    return passing


_POSTGRES = Dialling(lambda: psycopg.OperationalError("connection failed: Connection refused"))


def _passing_wait(wait: Any) -> Any:
    def passing(self: Any, gen: Any, *arguments: Any, **options: Any) -> Any:
        if gen.__name__ == _ENTERS_PIPELINE:
            return wait(self, gen, *arguments, **options)  # it sends nothing, so no answer can be lost
        label = _LABELS.pop(id(self), "")
        if label in ("", COMMIT, ROLLBACK) and self.pgconn.transaction_status not in _IN_TRANSACTION:
            return wait(self, gen, *arguments, **options)  # a setting, or nothing to end: nothing is sent
        return POINTS.passes(label, PsycopgLink(self), lambda: wait(self, gen, *arguments, **options))

    return passing


def _labelled(execute: Any) -> Any:
    def labelled(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        _LABELS[id(self.connection)] = str(query)
        return execute(self, query, *arguments, **options)

    return labelled


def _labelled_end(word: str, call: Any) -> Any:
    def labelled(self: Any) -> None:
        _LABELS[id(self)] = word
        call(self)

    return labelled


_LABELS: dict[int, str] = {}
_ENTERS_PIPELINE = "_enter_gen"
_IN_TRANSACTION = (TransactionStatus.INTRANS, TransactionStatus.INERROR, TransactionStatus.ACTIVE)


def _passing_sent(connection: Any, *statements: bytes, meanwhile: Callable[[], None] | None = None) -> Any:
    """One after the other: whatever may happen between any two, as when the server fails, happens there."""
    with connection.lock:
        if meanwhile is not None:
            meanwhile()
        for statement in statements:
            result = POINTS.passes(statement.decode(), QuickLink(connection), _executes(connection, statement))
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                break
        return result


def _executes(connection: Any, statement: bytes) -> Callable[[], Any]:
    return lambda: connection.pgconn.exec_(statement)


def _shut(descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as same, suppress(OSError):  # it was shut already
        same.shutdown(socket.SHUT_RDWR)


# -- PyMySQL


class PymysqlLink:
    """A connection of PyMySQL's."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def error(self, trip: Callable[[], T]) -> T:
        if self.raw._sock is not None:
            _shut(self.raw._sock.fileno())
        return trip()

    def lost(self, trip: Callable[[], T]) -> T:
        trip()
        while self.raw._result is not None and self.raw._result.has_next:
            self.raw.next_result()
        self.error(lambda: None)
        self.raw._force_close()
        raise pymysql.OperationalError(CR.CR_SERVER_LOST, "Lost connection to MySQL server during query")

    def killed(self, trip: Callable[[], T]) -> T:
        raw = self.raw
        with pymysql.connect(host=raw.host, port=raw.port, user=raw.user, password=raw.password) as other:
            other.query(f"KILL {raw.thread_id()}")
        return trip()


def _pymysql() -> Iterator[Any]:
    kind = pymysql.connections.Connection
    yield mock.patch.object(kind, "query", _passing_query(kind.query))
    yield mock.patch.object(kind, "connect", _passing_dial(kind.connect))
    for name in ("begin", "commit", "rollback", "ping"):
        yield mock.patch.object(kind, name, _passing_call(name, getattr(kind, name)))


def _passing_query(query: Any) -> Any:
    def passing(self: Any, sql: Any, *arguments: Any, **options: Any) -> Any:
        label = sql if isinstance(sql, str) else bytes(sql).decode(errors="replace")
        return POINTS.passes(label, PymysqlLink(self), lambda: query(self, sql, *arguments, **options))

    return passing


def _passing_dial(connect: Any) -> Any:
    def passing(self: Any, *arguments: Any) -> None:
        def dial() -> None:
            is_armed, POINTS.is_armed = POINTS.is_armed, False  # what is said while connecting belongs to it
            try:
                connect(self, *arguments)
            finally:
                POINTS.is_armed = is_armed

        try:
            POINTS.passes(CONNECT, _MYSQL, dial)
        except BaseException:
            self._force_close()
            raise

    return passing


_MYSQL = Dialling(lambda: pymysql.OperationalError(CR.CR_CONN_HOST_ERROR, "Can't connect to MySQL server"))


def _passing_call(name: str, call: Any) -> Any:
    def passing(self: Any, *arguments: Any, **options: Any) -> Any:
        return POINTS.passes(name.upper(), PymysqlLink(self), lambda: call(self, *arguments, **options))

    return passing


# -- sqlite3


class SqliteLink:
    """A connection to a file, on a disk that fails."""

    def error(self, trip: Callable[[], T]) -> T:
        raise _disk_error()

    def lost(self, trip: Callable[[], T]) -> T:
        done = trip()
        if isinstance(done, sqlite3.Cursor):
            done.fetchall()  # a statement that failed is not under way any more
        raise _disk_error()

    killed = error


def _disk_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


_SQLITE = SqliteLink()
_FILE = Dialling(_disk_error)


class PassingCursor(sqlite3.Cursor):
    """A cursor whose every statement is a point."""

    def execute(self, sql: str, *arguments: Any) -> Any:
        return POINTS.passes(sql, _SQLITE, lambda: super(PassingCursor, self).execute(sql, *arguments))

    def executemany(self, sql: str, *arguments: Any) -> Any:
        return POINTS.passes(sql, _SQLITE, lambda: super(PassingCursor, self).executemany(sql, *arguments))


@cache
def _passing_kind(kind: type[sqlite3.Connection]) -> type[sqlite3.Connection]:
    class PassingConnection(kind):  # type: ignore[valid-type, misc]
        def cursor(self, factory: Any = PassingCursor) -> Any:
            return super().cursor(factory)

        def execute(self, *arguments: Any) -> Any:
            return self.cursor().execute(*arguments)

        def executemany(self, *arguments: Any) -> Any:
            return self.cursor().executemany(*arguments)

        def commit(self) -> None:
            if self.in_transaction:
                POINTS.passes(COMMIT, _SQLITE, super().commit)

        def rollback(self) -> None:
            if self.in_transaction:
                POINTS.passes(ROLLBACK, _SQLITE, super().rollback)

    return PassingConnection


def _sqlite() -> Iterator[Any]:
    connect = sqlite3.connect

    def passing(*arguments: Any, factory: type[sqlite3.Connection] = sqlite3.Connection, **options: Any) -> Any:
        return POINTS.passes(CONNECT, _FILE, lambda: connect(*arguments, factory=_passing_kind(factory), **options))

    for module in (sqlite3, sqlite3.dbapi2):
        yield mock.patch.object(module, "connect", passing)
