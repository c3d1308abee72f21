"""Engines, connections, sessions and sessionmakers of SQLAlchemy, on whichever driver.

A session's transaction is put on a connection of its engine that is taken for it, so that this can be set up before
and put back afterwards. Of a session that is bound to several databases, only the one it is bound to itself is fenced.

A commit by anybody else is refused: on psycopg by its connection itself, elsewhere by an event, which costs more.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import closing, suppress
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from fencepost.fence.sources.source import COMMITS_BY_ITSELF, Source, hold, in_a_transaction, release
from fencepost.fence.target import TAKEN, Target, described, target_of
from fencepost.schema.columns import MYSQL_KINDS

_AUTOCOMMIT = "AUTOCOMMIT"  # what SQLAlchemy calls an isolation, and has to end itself


def sqlalchemy_source(given: Any) -> Source:
    """Return an engine, connection, session or sessionmaker as a source."""
    if isinstance(given, Engine | Connection):
        return ConnectionSource(given)
    if isinstance(given, scoped_session | Session | sessionmaker):
        return SessionSource(given)
    raise TypeError(
        f"{described(given)} is nothing of SQLAlchemy's that a fenced transaction can be opened on; taken are an "
        f"Engine or Connection, a Session or a sessionmaker, and {TAKEN}"
    )


class ConnectionSource:
    """An engine, of which a connection is taken and given back; or a connection, which is left open."""

    def __init__(self, bind: Engine | Connection) -> None:
        self._bind = bind
        self._connection: Connection | None = None
        self._target: Target | None = None
        self._previous: str | None = None
        self._is_isolated = False
        self._psycopg: Any = None  # its connection, if it is one of psycopg's
        self._is_ending = False
        self._was_bypassed = False

    @property
    def connection(self) -> Connection:
        """The connection, once it is open."""
        if self._connection is None:
            raise RuntimeError("this source is not open")
        return self._connection

    @property
    def given(self) -> Any:
        """The connection."""
        return self.connection

    @property
    def target(self) -> Target:
        """The connection, to execute statements."""
        if self._target is None:
            self._target = target_of(self.connection)
        return self._target

    @property
    def place(self) -> Hashable:
        """The engine."""
        return self._bind.engine

    @property
    def is_mariadb(self) -> bool:
        """As SQLAlchemy knows it, once it has connected."""
        return bool(getattr(self.connection.dialect, "is_mariadb", False))

    @property
    def raw(self) -> Any:
        """The driver's connection."""
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
        """Begin with this isolation; SQLite has but one."""
        if self.connection.dialect.name != "sqlite":
            self._isolate(isolation.upper())
        self._is_ending = self._was_bypassed = False
        self._begin()
        if self._psycopg is not None:
            hold(self._psycopg, "commit")

    def commit(self) -> None:
        """Commit, if that has not been done past SQLAlchemy."""
        self._is_ending = True
        self._release()
        try:
            self._commit()
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """Roll back, also what SQLAlchemy takes for ended since its commit failed: no database does."""
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
        """Unless somebody wants to be told before it, and might write then; or it would be refused by SQLAlchemy."""
        transaction = self.connection.get_transaction()
        is_open = transaction is not None and transaction.is_active  # else somebody's own commit was refused
        return is_open and not any(True for _ in self.connection.dispatch.commit)

    def retold(self, error: Exception) -> Exception:
        """Return SQLAlchemy's own error; a connection that is lost is given up."""
        connection = self.connection
        dialect = connection.dialect
        if not isinstance(error, dialect.loaded_dbapi.Error):
            return error
        is_lost = dialect.is_disconnect(error, self._psycopg, None)
        if is_lost:
            with suppress(SQLAlchemyError):  # which sees that itself then, and gives up all of the pool
                connection.exec_driver_sql("SELECT 1")
            connection.invalidate(error)
        return DBAPIError.instance(
            None, None, error, dialect.loaded_dbapi.Error, connection_invalidated=is_lost, dialect=dialect
        )

    def flush(self) -> None:
        """Nothing waits to be sent."""

    def execute_outside(self, sql: str) -> None:
        """Set something."""
        connection = self.connection
        if connection.closed or connection.invalidated:
            return
        with suppress(DBAPIError):  # a connection that is broken keeps nothing
            connection.exec_driver_sql(sql)
            connection.rollback()

    def close(self) -> None:
        """Put the isolation back, and the connection too if it was taken."""
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
        """Set it, unless the connection has it: that would cost a round trip or two, here and when it is put back."""
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
        """Set it for the next transaction alone.

        What SQLAlchemy sets for the session is put back when the pool has the connection again; if that is lost by
        then, a transaction that was committed ends in an error of the driver's, and its place in the pool is gone.
        """
        connection = self.connection
        try:
            with closing(connection.connection.cursor()) as cursor:  # not by SQLAlchemy, for which that is a beginning
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        except connection.dialect.loaded_dbapi.Error as error:
            raise self.retold(error) from error

    def _put_back(self, connection: Connection) -> None:
        """One that was taken from a pool is put back by the pool."""
        if self._is_isolated and not connection.closed and not connection.invalidated:
            at_first = getattr(connection.dialect, "_on_connect_isolation_level", None)
            before = self._previous or at_first or connection.default_isolation_level
            with suppress(DBAPIError, connection.dialect.loaded_dbapi.Error):
                connection.execution_options(isolation_level=before)

    def _on_commit(self, connection: Connection) -> None:
        """Refuse a commit by anybody but us: it would go past the fence."""
        if not self._is_ending:
            self._was_bypassed = True
            raise RuntimeError(COMMITS_BY_ITSELF)


class SessionSource(ConnectionSource):
    """A session, which goes on with its own connections afterwards; or a sessionmaker, whose session is closed."""

    def __init__(self, given: Session | scoped_session[Any] | sessionmaker[Any]) -> None:
        self._given = given
        self._is_ours = isinstance(given, sessionmaker)
        self._session: Session = given if isinstance(given, Session) else given()
        try:
            super().__init__(self._session.get_bind())
        except UnboundExecutionError as error:
            raise TypeError(
                f"{described(given)} is bound to no database by itself, so none could be fenced; give it a bind, or "
                "hand over the engine"
            ) from error

    @property
    def given(self) -> Any:
        """The session of a sessionmaker, or what was handed in."""
        return self._session if self._is_ours else self._given

    @property
    def target(self) -> Target:
        """The connection beneath the session: what is pending there is not sent for our statements."""
        return super().target

    def open(self) -> None:
        """Connect, or refuse a session that is in a transaction."""
        if self._session.in_transaction():
            raise in_a_transaction(self._given)
        super().open()
        event.listen(self._session, "before_commit", self._before_commit)

    @property
    def ends_with_commit(self) -> bool:
        """A session may have more to send when it commits."""
        return False

    def flush(self) -> None:
        """Send what is pending."""
        self._session.flush()

    def close(self) -> None:
        """Put back."""
        if self._connection is not None:
            event.remove(self._session, "before_commit", self._before_commit)
        super().close()
        if self._is_ours:
            self._session.close()

    def _begin(self) -> None:
        self._session.connection(bind_arguments={"bind": self.connection})

    def _commit(self) -> None:
        self._session.commit()

    def _roll_back(self) -> None:
        self._session.rollback()
        if self.connection.in_transaction():
            self.connection.rollback()

    def _before_commit(self, session: Session) -> None:
        """Refuse it before the session thinks that it has ended; a savepoint may end."""
        if not self._is_ending and not session.in_nested_transaction():
            raise RuntimeError(COMMITS_BY_ITSELF)
