"""Connections for users' own statements in the ledger's database: one SQLAlchemy engine per ledger and process.

It keeps one connection open, and opens more for concurrent transactions, up to a limit. In a forked child it starts
with no connections, and leaves the parent's connections to the parent.
"""

from __future__ import annotations

import math
import socket
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy
from sqlalchemy import Engine, QueuePool, event

from fencepost.sql import sqlite
from fencepost.sql.forked_sqlite import FORKED_SQLITE
from fencepost.sql.parents import leave_to_parent

if TYPE_CHECKING:
    from fencepost.core.runtime import Runtime
    from fencepost.ledger.ledger import Ledger
    from fencepost.ledger.urls import LedgerUrl

_MOST_CONNECTIONS = 100  # more than jobs of one process can use; slots bound it in practice


def engine_of(ledger: Ledger) -> Engine:
    """Return the engine for users' transactions in the ledger's database, made when first needed."""
    found = _kept.get(ledger)
    if found is None:
        found = _kept.setdefault(ledger, KeptEngine(ledger.url, ledger.runtime))
    return found.engine


def close_engine(ledger: Ledger) -> None:
    """Close the connections of the engine, if there is one. A later transaction opens new ones."""
    found = _kept.pop(ledger, None)
    if found is not None:
        found.engine.dispose()


class KeptEngine:
    """An engine that keeps track of its open connections, also in a forked child."""

    def __init__(self, url: LedgerUrl, runtime: Runtime) -> None:
        self._runtime = runtime
        self._is_file = url.is_file
        self._opened: dict[int, Any] = {}
        self.engine = _new_engine(url)
        event.listen(self.engine, "connect", self._note_opened)
        event.listen(self.engine, "close", self._note_closed)
        if self._is_file:
            FORKED_SQLITE.join(self.open_now)
        runtime.after_fork(self, self._forget)

    def open_now(self) -> tuple[list[Any], int]:
        """Return all connections, and how many of them are in use."""
        pool = self.engine.pool
        return list(self._opened.values()), pool.checkedout() if isinstance(pool, QueuePool) else 0

    def _note_opened(self, connection: Any, _: object) -> None:
        if self._is_file:
            connection.execute("PRAGMA synchronous = FULL")
        self._opened[id(connection)] = connection

    def _note_closed(self, connection: Any, _: object) -> None:
        self._opened.pop(id(connection), None)

    def _forget(self) -> None:
        opened, in_use = self.open_now()
        leave_to_parent(opened)
        self._opened = {}
        if self._is_file:
            FORKED_SQLITE.settle(self._runtime.process_id(), opened, in_use=in_use)
        self.engine.dispose(close=False)


_kept: WeakKeyDictionary[Ledger, KeptEngine] = WeakKeyDictionary()


def _new_engine(url: LedgerUrl) -> Engine:
    is_file = url.is_file
    arguments: dict[str, Any] = (
        {"timeout": url.timeout_s, "isolation_level": None, "check_same_thread": False}
        if is_file
        else {"connect_timeout": max(round(url.timeout_s), 1)}
    )
    if url.kind == "postgresql":
        arguments |= _noticing_silence(url)
    engine = sqlalchemy.create_engine(
        url.sqlalchemy(),
        connect_args=arguments,
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=_MOST_CONNECTIONS,
        pool_pre_ping=not is_file,
    )
    if is_file:
        event.listen(engine, "do_connect", _refuse_if_lost)
    if url.kind == "mysql":
        event.listen(engine, "do_connect", _connect_quickly)
        event.listen(engine, "connect", lambda connection, _: _notice_silence(connection, url))
    return engine


def _noticing_silence(url: LedgerUrl) -> dict[str, int]:
    """Return the libpq options that detect a dead peer quickly; by default, that takes two hours.

    They do not limit how long a statement may take: a machine that is alive answers keepalives.
    """
    limit_s = max(2, math.ceil(url.timeout_s))
    return {
        "keepalives_idle": limit_s,
        "keepalives_interval": limit_s,
        "keepalives_count": 3,
        "tcp_user_timeout": limit_s * 2000,
    }


def _notice_silence(connection: Any, url: LedgerUrl) -> None:
    """Set the same socket options for PyMySQL, which has no settings for them."""
    wire = getattr(connection, "_sock", None)
    if wire is None or wire.family == getattr(socket, "AF_UNIX", None):
        return
    limits = _noticing_silence(url)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", limits["keepalives_idle"]),
        ("TCP_KEEPINTVL", limits["keepalives_interval"]),
        ("TCP_KEEPCNT", limits["keepalives_count"]),
        ("TCP_USER_TIMEOUT", limits["tcp_user_timeout"]),
    ):
        if (option := getattr(socket, name, None)) is not None:  # macOS lacks some
            wire.setsockopt(socket.IPPROTO_TCP, option, value)


def _refuse_if_lost(*_: object) -> None:
    """Refuse to open the file if that would wait for ever."""
    sqlite.refuse_if_lost()


def _connect_quickly(_: object, __: object, words: Any, options: Any) -> Any:
    from fencepost.sql.pymysql_link import BoundedPyMySQL  # noqa: PLC0415 - the driver may be missing

    return BoundedPyMySQL(*words, **options)
