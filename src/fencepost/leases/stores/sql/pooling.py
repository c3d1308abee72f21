"""Finds out whether a connection to PostgreSQL keeps its server session from one transaction to the next.

Behind a proxy that pools by transaction it does not: a session lock taken by one statement belongs, at the next, to
whoever got that server connection. The test: note the server process behind one connection, then let others hold
transactions open. If one of them runs in that process, or the first is moved to another, sessions are shared.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress

from fencepost.leases.stores.sql.psycopg_connection import PsycopgConnection
from fencepost.sql.psycopg_link import ERRORS, is_protocol_violation

_OTHERS = 3
_ROUNDS = 2


def sessions_are_shared(connect: Callable[[], PsycopgConnection]) -> bool:
    """Whether server sessions wander between connections. `connect` sets the deadline; all are closed again."""
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
        # Looked at once it is in its transaction, and before `first` is asked again: with a pool of one it would
        # wait for ever.
        return any(_begun(other) == home for other in others) or _pid(first) != home
    except ERRORS as error:
        if not is_protocol_violation(error):
            raise
        return True  # not even transactions: a proxy that pools by statement
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
