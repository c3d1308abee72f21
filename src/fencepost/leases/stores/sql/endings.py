"""How a session's leases end together: it was closed, or it died. One transaction, history included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.leases.stores.sql.backend import Backend, Connection, transaction
from fencepost.leases.stores.sql.statements import Statements, marks

AT_ONCE = 200


class Endings:
    """Ends sessions. The order of locks is always session first, then its leases by name."""

    def __init__(self, backend: Backend, sql: Statements) -> None:
        self._backend = backend
        self._sql = sql

    def close(self, connection: Connection, session_id: str) -> None:
        """End a session at its owner's wish."""
        with transaction(connection):
            connection.change(self._sql.close, (session_id,))
            self._end_leases(connection, session_id, why="session closed")

    def bury(self, connection: Connection, session_id: str) -> None:
        """End a session if it has expired; a live one is left alone.

        A session that is not there has been buried, or was deleted by hand. Its id never comes back, so whatever
        still hangs on it is free.
        """
        with transaction(connection):
            is_buried = connection.change(self._sql.bury, (session_id,)) == 1
            if is_buried or not connection.rows(self._sql.is_there, (session_id,)):
                self._end_leases(connection, session_id, why="expired")

    def _end_leases(self, connection: Connection, session_id: str, *, why: str) -> None:
        """Lock the leases, write their history, free them. Exactly those that were locked, and each once."""
        names = [row[0] for row in connection.rows(self._sql.leases_of, (session_id,))]
        for chunk in chunks(names):
            these = f" WHERE session_id = %s AND name IN {marks(len(chunk))}"
            connection.change(f"{self._sql.past}{these}", (why, session_id, *chunk))
            connection.change(f"{self._sql.free}{these}", (session_id, *chunk))
            self._backend.announce(connection, chunk)


def chunks(items: Sequence[Any]) -> list[Sequence[Any]]:
    """Cut into pieces that fit into one statement."""
    return [items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE)]
