"""Checks whether a connection to PostgreSQL keeps its server session from one transaction to the next.

Behind a proxy that pools by transaction it does not: a session lock taken by one statement may belong to another client
at the next statement. The test: read the server process id of one connection, then keep transactions open on others. If
one of them runs in that process, or the first is moved to another process, sessions are shared.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress

from fencepost.leases.stores.sql.psycopg_connection import PsycopgConnection
from fencepost.sql.psycopg_link import ERRORS, is_protocol_violation

_OTHERS = 3  # enough to take the server connection that a pooler has just freed
_ROUNDS = 2  # once more, in case another client of the pooler disturbed the first round


def sessions_are_shared(connect: Callable[[], PsycopgConnection]) -> bool:
    """Whether connections share server sessions. `connect` sets the deadline; all connections are closed again."""
    with ExitStack() as stack:

        def opened() -> PsycopgConnection:
            connection = connect()
            stack.callback(connection.close)
            return connection

        first = opened()
        others = [opened() for _ in range(_OTHERS)]
        return any(_is_moved(first, others) for _ in range(_ROUNDS))


def _is_moved(first: PsycopgConnection, others: list[PsycopgConnection]) -> bool:
    home = _pid(first)
    try:
        # Checked inside the transaction of each, and before `first` is used again: with a pool of one connection,
        # `first` would wait for ever.
        return any(_begun(other) == home for other in others) or _pid(first) != home
    except ERRORS as error:
        if not is_protocol_violation(error):
            raise
        return True  # transactions are refused: a proxy that pools by statement
    finally:
        for other in others:
            with suppress(*ERRORS):
                other.rollback()


def _begun(connection: PsycopgConnection) -> int:
    connection.change("BEGIN")
    return _pid(connection)


def _pid(connection: PsycopgConnection) -> int:
    [(pid,)] = connection.rows("SELECT pg_backend_pid()")
    return int(pid)
