"""Ends all leases of a session that was closed or has died, in one transaction, including the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fencepost.leases.stores.sql.backend import Backend, LeaseConnection, transaction
from fencepost.leases.stores.sql.sightings import Sightings
from fencepost.leases.stores.sql.statements import WATCHED, Statements, marks

AT_ONCE = 200  # names per statement: well below every database's limit on parameters
_WATCHED_NAMES = (WATCHED, WATCHED[:-1] + chr(ord(WATCHED[-1]) + 1))  # the range of all names with this prefix


class DeathCheck(NamedTuple):
    """Whether a session is gone, and if not, how long this process has to watch it before it may end it."""

    is_gone: bool
    spared_s: float = 0.0


class SessionEndings:
    """Ends sessions. Locks are always taken in the same order: the session first, then its leases by name."""

    def __init__(self, backend: Backend, sql: Statements, sightings: Sightings) -> None:
        self._backend = backend
        self._sql = sql
        self._sightings = sightings

    def close(self, connection: LeaseConnection, session_id: str) -> None:
        """End a session because its owner closes it."""
        with transaction(connection):
            connection.change(self._sql.close, (session_id,))
            self._end_leases(connection, session_id, why="session closed")

    def bury(self, connection: LeaseConnection, session_id: str, *, only_watched: bool = False) -> DeathCheck:
        """End a session if it has expired; a live one is not changed.

        The session of a node, and with `only_watched` every session, is ended only if this process has watched it for
        its ttl. A session without a row has already been ended, or was deleted by hand. Its id is never reused, so its
        leases are free.
        """
        with transaction(connection):
            sql, parameters = self._sql.bury, [session_id]
            if seen := self._seen(connection, session_id, only_watched):
                expires_at, ttl_us = seen[0]
                spared_s = self._sightings.spared_s(session_id, mark=expires_at, ttl_us=ttl_us)
                if spared_s > 0:
                    return DeathCheck(is_gone=False, spared_s=spared_s)
                sql, parameters = self._sql.bury_seen, [session_id, expires_at]
            is_buried = connection.change(sql, parameters) == 1
            is_gone = is_buried or not connection.rows(self._sql.is_there, (session_id,))
            if is_gone:
                self._end_leases(connection, session_id, why="expired")
            return DeathCheck(is_gone)

    def _seen(self, connection: LeaseConnection, session_id: str, only_watched: bool) -> list[tuple[Any, ...]]:
        """Return the mark and ttl of a session that must be watched before it is ended; empty if it need not be."""
        if only_watched:
            return connection.rows(self._sql.unwatched, (session_id,))
        return connection.rows(self._sql.watched, (session_id, *_WATCHED_NAMES))

    def _end_leases(self, connection: LeaseConnection, session_id: str, *, why: str) -> None:
        """Lock the leases, write their history, and free them: exactly those that were locked, each once."""
        names = [row[0] for row in connection.rows(self._sql.leases_of, (session_id,))]
        for chunk in chunks(names):
            these = f" WHERE session_id = %s AND name IN {marks(len(chunk))}"
            connection.change(f"{self._sql.past}{these}", (why, session_id, *chunk))
            connection.change(f"{self._sql.free}{these}", (session_id, *chunk))
            self._backend.announce(connection, chunk)


def chunks(items: Sequence[Any]) -> list[Sequence[Any]]:
    """Split into parts that fit into one statement."""
    return [items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE)]
