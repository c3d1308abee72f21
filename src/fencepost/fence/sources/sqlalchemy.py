"""Engines and connections of SQLAlchemy, on any driver; `sqlalchemy_session` has its sessions.

A commit by the user is refused: with psycopg by the driver's connection, elsewhere by an event, which costs more.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import closing, suppress
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from fencepost.fence.sources.source import COMMITS_BY_ITSELF, Source, hold, in_a_transaction, release
from fencepost.fence.target import Target, target_of
from fencepost.schema.columns import MYSQL_KINDS

_AUTOCOMMIT = "AUTOCOMMIT"  # an isolation level for SQLAlchemy, which only SQLAlchemy itself can switch off


def sqlalchemy_source(given: Any) -> Source:
    """Return an engine, connection, session or sessionmaker as a source."""
    if isinstance(given, Engine | Connection):
        return ConnectionSource(given)
    # Importing the ORM takes longer than the rest of a worker's start. Only those who pass a session have it anyway.
    from fencepost.fence.sources.sqlalchemy_session import session_source  # noqa: PLC0415

    return session_source(given)


class ConnectionSource:
    """An engine, whose pool lends a connection; or a connection, which is left open."""

    def __init__(self, bind: Engine | Connection) -> None:
        self._bind = bind
        self._connection: Connection | None = None
        self._target: Target | None = None
        self._previous: str | None = None
        self._is_isolated = False
        self._psycopg: Any = None  # the driver's connection, if the driver is psycopg
        self._is_ending = False
        self._was_bypassed = False

    @property
    def connection(self) -> Connection:
        """The connection. Available once the source is open."""
        if self._connection is None:
            raise RuntimeError("this source is not open")
        return self._connection

    @property
    def given(self) -> Any:
        return self.connection

    @property
    def target(self) -> Target:
        if self._target is None:
            self._target = target_of(self.connection)
        return self._target

    @property
    def place(self) -> Hashable:
        return self._bind.engine

    @property
    def is_mariadb(self) -> bool:
        return bool(getattr(self.connection.dialect, "is_mariadb", False))

    @property
    def raw(self) -> Any:
        return self.connection.connection.driver_connection

    def open(self) -> None:
        """Connect, or refuse a connection that is in a transaction."""
        if isinstance(self._bind, Connection) and self._bind.in_transaction():
            raise in_a_transaction(self._bind)
        connection = self._bind if isinstance(self._bind, Connection) else self._bind.connect()
        self._previous = connection.get_execution_options().get("isolation_level")
        self._connection = connection
        if connection.dialect.driver == "psycopg":
            self._psycopg = self.raw
        else:
            event.listen(connection, "commit", self._on_commit)

    def begin(self, isolation: str) -> None:
        """Begin with this isolation level; SQLite has only one."""
        if self.connection.dialect.name != "sqlite":
            self._isolate(isolation.upper())
        self._is_ending = self._was_bypassed = False
        self._begin()
        if self._psycopg is not None:
            hold(self._psycopg, "commit")

    def commit(self) -> None:
        """Commit, unless a COMMIT was already sent through libpq."""
        self._is_ending = True
        self._release()
        try:
            self._commit()
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """Roll back on the driver as well: SQLAlchemy considers a transaction ended after a failed commit."""
        self._release()
        with suppress(SQLAlchemyError):
            self._roll_back()
            if self._was_bypassed and self._psycopg is None:
                self.connection.connection.rollback()
        if self._psycopg is not None:
            with suppress(self.connection.dialect.loaded_dbapi.Error):
                self._psycopg.rollback()
        self._was_bypassed = False

    @property
    def ends_with_commit(self) -> bool:
        """False if a listener for commit is registered, which might write, or SQLAlchemy would refuse the commit."""
        transaction = self.connection.get_transaction()
        is_open = transaction is not None and transaction.is_active  # not active after a refused commit of the user's
        return is_open and not any(True for _ in self.connection.dispatch.commit)

    def retold(self, error: Exception) -> Exception:
        """Return SQLAlchemy's error. Invalidate a lost connection."""
        connection = self.connection
        dialect = connection.dialect
        if not isinstance(error, dialect.loaded_dbapi.Error):
            return error
        is_lost = dialect.is_disconnect(error, self._psycopg, None)
        if is_lost:
            with suppress(SQLAlchemyError):  # SQLAlchemy then notices the loss and invalidates the whole pool
                connection.exec_driver_sql("SELECT 1")
            connection.invalidate(error)
        return DBAPIError.instance(
            None, None, error, dialect.loaded_dbapi.Error, connection_invalidated=is_lost, dialect=dialect
        )

    def flush(self) -> None:
        """Do nothing: there are no pending changes."""

    def execute_outside(self, sql: str) -> None:
        connection = self.connection
        if connection.closed or connection.invalidated:
            return
        with suppress(DBAPIError):  # a broken connection has no settings to restore
            connection.exec_driver_sql(sql)
            connection.rollback()

    def close(self) -> None:
        """Restore the isolation level, and return the connection to its pool if it came from there."""
        connection, self._connection, self._target = self._connection, None, None
        if connection is None:
            return
        if self._psycopg is None:
            event.remove(connection, "commit", self._on_commit)
        self._release()
        try:
            if connection is self._bind:
                self._put_back(connection)
        finally:
            if connection is not self._bind:
                connection.close()

    def _release(self) -> None:
        if self._psycopg is not None:
            release(self._psycopg)

    def _begin(self) -> None:
        self.connection.begin()

    def _commit(self) -> None:
        self.connection.commit()

    def _roll_back(self) -> None:
        self.connection.rollback()

    def _isolate(self, isolation: str) -> None:
        """Set the isolation level unless the connection has it. This saves a round trip or two, here and at the end."""
        dialect, asked_for = self.connection.dialect, self.connection.get_execution_options().get("isolation_level")
        at_first = getattr(dialect, "_on_connect_isolation_level", None) or dialect.default_isolation_level
        if (asked_for or at_first) == isolation:
            return
        if dialect.name in MYSQL_KINDS and _AUTOCOMMIT not in (asked_for, at_first):
            self._isolate_once(isolation)
        else:
            self.connection.execution_options(isolation_level=isolation)
            self._is_isolated = True

    def _isolate_once(self, isolation: str) -> None:
        """Set the isolation level for the next transaction only.

        If SQLAlchemy sets it for the session, it resets it when the connection returns to the pool. If the connection
        is lost by then, a committed transaction would end with an error of the driver, and the pool would lose a slot.
        """
        connection = self.connection
        try:
            with closing(connection.connection.cursor()) as cursor:  # for SQLAlchemy, a statement begins a transaction
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        except connection.dialect.loaded_dbapi.Error as error:
            raise self.retold(error) from error

    def _put_back(self, connection: Connection) -> None:
        """Restore the isolation level. The pool does so for connections that came from it."""
        if self._is_isolated and not connection.closed and not connection.invalidated:
            at_first = getattr(connection.dialect, "_on_connect_isolation_level", None)
            before = self._previous or at_first or connection.default_isolation_level
            with suppress(DBAPIError, connection.dialect.loaded_dbapi.Error):
                connection.execution_options(isolation_level=before)

    def _on_commit(self, connection: Connection) -> None:
        """Refuse a commit that is not ours, because it would bypass the fence."""
        if not self._is_ending:
            self._was_bypassed = True
            raise RuntimeError(COMMITS_BY_ITSELF)
