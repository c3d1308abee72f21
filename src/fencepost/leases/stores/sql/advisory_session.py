"""One session of the advisory store: a connection that holds locks, for one call at a time.

The connection *is* the session, and is never replaced. When it breaks, the server releases its locks and the session is
lost. When a call on it gets no reply in time, it is *mute*: it is not used any more, but left open for one more ttl,
because closing it would free locks that their holder may still trust.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TypeVar

from fencepost.core.runtime import Runtime
from fencepost.leases.stores.sql.calls import all_busy
from fencepost.leases.stores.sql.psycopg_connection import PsycopgConnection
from fencepost.sql.pool import Pool
from fencepost.sql.troubles import CallTimedOut

T = TypeVar("T")


class SessionGoneError(Exception):
    """The session's connection is closed, and its locks are free."""


class SessionMuteError(Exception):
    """A call on the session's connection got no reply; whether its locks are still held is unknown."""


class AdvisorySession:
    """A connection, the keys it has locked, and the queue of calls that want to use it."""

    def __init__(self, runtime: Runtime, connection: PsycopgConnection, *, timeout_s: float, ttl_s: float) -> None:
        self.timeout_s = timeout_s
        self._ttl_s = ttl_s
        self._mute: PsycopgConnection | None = None
        self._mute_until = float("inf")
        self.keys: dict[int, str] = {}  # the name for each key that this session has locked; guarded by its turn
        self._runtime = runtime
        self._connection: PsycopgConnection | None = connection
        self._turn = Pool(runtime, self._only_once, close=PsycopgConnection.close, limit=1, busy=all_busy)

    def run(self, timeout_s: float, work: Callable[[PsycopgConnection], T]) -> T:
        """Do `work` when it is our turn. Any exception ends the session, because the outcome is unknown."""
        self._check_mute()
        deadline = self._runtime.monotonic() + timeout_s
        connection, _ = self._turn.take(deadline)
        connection.deadline = deadline
        try:
            result = work(connection)
        except CallTimedOut:
            self._mute, self._mute_until = connection, self._runtime.monotonic() + self._ttl_s
            raise
        except BaseException:
            self._turn.drop(connection)
            raise
        self._turn.give(connection)
        return result

    def end(self) -> None:
        """Close the connection, unless a call is using it."""
        self._turn.drop_idle()
        unused, self._connection = self._connection, None
        for connection in (unused, self._mute):
            if connection is not None:
                connection.close()

    @property
    def is_mute(self) -> bool:
        """Whether a call got no reply."""
        return self._mute is not None

    def _check_mute(self) -> None:
        if self._mute is None:
            return
        if self._runtime.monotonic() < self._mute_until:
            raise SessionMuteError
        self.end()
        raise SessionGoneError

    def _only_once(self, timeout_s: float) -> PsycopgConnection:
        connection, self._connection = self._connection, None
        if connection is None:
            raise SessionGoneError
        return connection


def key_of(name: str) -> int:
    """Return the key under which PostgreSQL locks `name`: 64 bits of a hash, as a signed integer.

    Two names may share a key. Then one of them is refused while the other is held; there are never two holders.
    """
    return int.from_bytes(sha256(b"fencepost:" + name.encode()).digest()[:8], "big", signed=True)


def halves(key: int) -> tuple[int, int]:
    """Return the high and the low half of the key, unsigned, as pg_locks shows them."""
    return (key >> 32) & 0xFFFFFFFF, key & 0xFFFFFFFF
