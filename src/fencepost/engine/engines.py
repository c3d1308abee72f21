"""Connections for users' own statements in the ledger's database: one SQLAlchemy engine per ledger and process.

It keeps one connection at hand and opens as many more as there are transactions at once. In a forked child it starts
anew, and leaves its parent's connections to the parent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy
from sqlalchemy import Engine, QueuePool, event

from fencepost.core.forked_sqlite import FORKED_SQLITE

if TYPE_CHECKING:
    from fencepost.core.runtime import Runtime
    from fencepost.ledger.ledger import Ledger
    from fencepost.ledger.urls import LedgerUrl

_MOST_CONNECTIONS = 100


def engine_of(ledger: Ledger) -> Engine:
    """Return the engine for users' transactions in the ledger's database, made when first needed."""
    found = _kept.get(ledger)
    if found is None:
        found = _kept.setdefault(ledger, KeptEngine(ledger.url, ledger.runtime))
    return found.engine


def close_engine(ledger: Ledger) -> None:
    """Close the connections of the engine, if there is one; a later transaction opens anew."""
    found = _kept.pop(ledger, None)
    if found is not None:
        found.engine.dispose()


class KeptEngine:
    """An engine that knows what it has open, also in a forked child."""

    def __init__(self, url: LedgerUrl, runtime: Runtime) -> None:
        self._runtime = runtime
        self._is_file = url.kind == "sqlite"
        self._opened: dict[int, Any] = {}
        self._inherited: list[Any] = []  # kept, so that a child does not close what is its parent's
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
        self._inherited += opened
        self._opened = {}
        if self._is_file:
            FORKED_SQLITE.settle(self._runtime.process_id(), opened, in_use=in_use)
        self.engine.dispose(close=False)


_kept: WeakKeyDictionary[Ledger, KeptEngine] = WeakKeyDictionary()


def _new_engine(url: LedgerUrl) -> Engine:
    is_file = url.kind == "sqlite"
    arguments: dict[str, Any] = (
        {"timeout": url.timeout_s, "isolation_level": None, "check_same_thread": False}
        if is_file
        else {"connect_timeout": max(round(url.timeout_s), 1)}
    )
    engine = sqlalchemy.create_engine(
        url.sqlalchemy(),
        connect_args=arguments,
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=_MOST_CONNECTIONS,
        pool_pre_ping=not is_file,
    )
    if url.kind == "mysql":
        event.listen(engine, "do_connect", _connect_quickly)
    return engine


def _connect_quickly(_: object, __: object, words: Any, options: Any) -> Any:
    from fencepost.ledger.dialects.mysql import SharingConnection  # noqa: PLC0415 - the driver may be missing

    return SharingConnection(*words, **options)
