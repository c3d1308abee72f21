"""Sessions and sessionmakers of SQLAlchemy, on any driver.

A session's transaction runs on a connection that is taken from its engine, so that the connection can be set up before
and restored afterwards. If a session is bound to several databases, only that of its own bind is fenced.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from fencepost.fence.sources.source import COMMITS_BY_ITSELF, Source, in_a_transaction
from fencepost.fence.sources.sqlalchemy import ConnectionSource
from fencepost.fence.target import TAKEN, Target, described


def session_source(given: Any) -> Source:
    """Return a session or sessionmaker as a source."""
    if isinstance(given, scoped_session | Session | sessionmaker):
        return SessionSource(given)
    raise TypeError(
        f"a fenced transaction cannot be opened on {described(given)} of SQLAlchemy; supported are an "
        f"Engine or Connection, a Session or a sessionmaker, and {TAKEN}"
    )


class SessionSource(ConnectionSource):
    """A session, which uses its own connections again afterwards; or a sessionmaker, whose session is closed."""

    def __init__(self, given: Session | scoped_session[Any] | sessionmaker[Any]) -> None:
        self._given = given
        self._is_ours = isinstance(given, sessionmaker)
        self._session: Session = given if isinstance(given, Session) else given()
        try:
            super().__init__(self._session.get_bind())
        except UnboundExecutionError as error:
            raise TypeError(
                f"{described(given)} has no bind of its own, so no database could be fenced; give it a bind, or "
                "pass the engine"
            ) from error

    @property
    def given(self) -> Any:
        """The session of a sessionmaker, or the object that was passed in."""
        return self._session if self._is_ours else self._given

    @property
    def target(self) -> Target:
        """The session's connection: our statements do not flush pending changes."""
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
        self._session.flush()

    def close(self) -> None:
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
        """Refuse a commit before the session considers its transaction ended. A savepoint may end."""
        if not self._is_ending and not session.in_nested_transaction():
            raise RuntimeError(COMMITS_BY_ITSELF)
