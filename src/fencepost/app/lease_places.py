"""Where leases are read and released by operators: in the ledger's own database, or in a store of its own.

On PostgreSQL, MySQL and MariaDB the leases of the nodes are beside the ledger's tables. They are read on the ledger's
connections, and a release commits together with its entry in the audit. A SQLite ledger has its leases in a second
file, and an application may name yet another store (``App(leases=…)``): these are asked by `Locks`, and a release there
cannot share a transaction with the audit.

**Promises.** Reading opens no session, takes no lease, locks no row and creates nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

from fencepost.core.grants import Grant, LeaseRecord, PastGrant, SessionSight
from fencepost.core.urls import StoreUrl
from fencepost.errors import LedgerRefused, NoSuchLock, StateChanged
from fencepost.leases.locks import Locks
from fencepost.leases.stores.sql.backend import GrantEnding
from fencepost.leases.stores.sql.options import LeaseTables
from fencepost.leases.stores.sql.reading import LeaseReading, Rows
from fencepost.leases.stores.sql.statements import statements
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.ledger import Ledger
from fencepost.locks import connect
from fencepost.sql.troubles import Trouble, trouble_of

T = TypeVar("T")

LEDGER, LEASES = "ledger", "leases"
"""The two places, as operators name them: the leases of the nodes, and the store of ``App(leases=…)``."""
REVOKED = "revoked"


class Revocation(NamedTuple):
    """What a release did: the lock as it was held, or as it is if it was not held."""

    record: LeaseRecord
    is_released: bool


class LeasePlace(Protocol):
    """Leases, as operators read them."""

    def read(self, name: str) -> LeaseRecord | None:
        """Return the record of a name, or None if it was never held."""
        ...

    def page(self, *, after: str, limit: int, is_held: bool) -> list[LeaseRecord]:
        """Return some records by name; see `fencepost.leases.store.ShowsLeases`."""
        ...

    def history(self, name: str | None, *, limit: int) -> list[PastGrant] | None:
        """Return ended grants, newest first, or None if this store keeps no history."""
        ...

    def sessions(self, grants: Collection[Grant]) -> dict[str, SessionSight] | None:
        """Return how the sessions of these grants look, by grant id, or None if that cannot be shown."""
        ...


class LeasesInLedger:
    """The leases beside the ledger's tables, on a server."""

    def __init__(self, ledger: Ledger) -> None:
        """Read them on the connections of `ledger`."""
        self._ledger = ledger

    def read(self, name: str) -> LeaseRecord | None:
        """Return the record of a name."""
        return self._asked(lambda rows: self._reading.lease(rows, name))

    def page(self, *, after: str, limit: int, is_held: bool) -> list[LeaseRecord]:
        """Return some records by name."""
        found = self._asked(lambda rows: self._reading.page(rows, after=after, limit=limit, is_held=is_held))
        return found or []

    def history(self, name: str | None, *, limit: int) -> list[PastGrant] | None:
        """Return ended grants, newest first."""
        return self._asked(lambda rows: self._reading.history(rows, name, limit=limit)) or []

    def sessions(self, grants: Collection[Grant]) -> dict[str, SessionSight] | None:
        """Return how the sessions of these grants look."""
        found = self._asked(lambda rows: self._reading.sessions(rows, grants)) or {}
        return {grant_id: sight for grant_id, (_, _, sight) in found.items()}

    def release(self, cursor: Cursor, name: str, token: int | None) -> Revocation:
        """End the grant of a name in the transaction of `cursor`. See `refuse_other` for `token`."""
        record = self._reading.lease(_rows_of(cursor), name)
        if record is None:
            raise NoSuchLock(name)
        if not record.is_held:
            return Revocation(record, is_released=False)
        refuse_other(record, token)
        ending = GrantEnding(name=name, grant_id=str(record.grant_id), token=record.token, why=REVOKED)
        cursor.execute(self._reading.sql.end, ending.parameters)
        if cursor.rowcount != 1:
            raise gone_meanwhile(name)
        cursor.execute(self._reading.sql.past_of, (REVOKED, name))
        if self._ledger.dialect.name == "postgresql":  # waiters on the others ask again by themselves
            cursor.execute("SELECT pg_notify(%s, %s)", (self._channel, name))
        return Revocation(record, is_released=True)

    def _asked(self, ask: Callable[[Rows], T]) -> T | None:
        """Read. Before the first node or lock has made the tables, there is nothing: None."""
        try:
            return self._ledger.read(lambda cursor: ask(_rows_of(cursor)))
        except LedgerRefused as error:
            if trouble_of(error.__cause__) is not Trouble.NO_TABLE:
                raise
            return None

    @cached_property
    def _tables(self) -> LeaseTables:
        return LeaseTables.of(StoreUrl.parse(self._ledger.url.lease_url()))

    @cached_property
    def _reading(self) -> LeaseReading:
        if self._ledger.dialect.name == "postgresql":
            from fencepost.leases.stores.sql.postgres_backend import WORDS  # noqa: PLC0415 - its driver is an extra
        else:
            from fencepost.leases.stores.sql.mysql_backend import WORDS  # noqa: PLC0415
        return LeaseReading(statements(WORDS, self._tables))

    @property
    def _channel(self) -> str:
        from fencepost.leases.stores.sql.postgres_backend import channel_of  # noqa: PLC0415 - its driver is an extra

        return channel_of(self._tables)


class LeasesElsewhere:
    """Leases in a store of its own. `opened` yields it; a file that does not exist yet is not made."""

    def __init__(self, opened: Callable[[], Any], *, is_there: Callable[[], bool] = lambda: True) -> None:
        """Ask the store that `opened` yields as a context, if `is_there`."""
        self._opened = opened
        self._is_there = is_there

    def read(self, name: str) -> LeaseRecord | None:
        """Return the record of a name."""
        return self._asked(lambda locks: locks.read(name))

    def page(self, *, after: str, limit: int, is_held: bool) -> list[LeaseRecord]:
        """Return some records by name."""
        return self._asked(lambda locks: locks.page(after=after, limit=limit, is_held=is_held)) or []

    def history(self, name: str | None, *, limit: int) -> list[PastGrant] | None:
        """Return ended grants, newest first."""
        return self._asked(lambda locks: locks.history(name, limit=limit)) if self._is_there() else []

    def sessions(self, grants: Collection[Grant]) -> dict[str, SessionSight] | None:
        """Return how the sessions of these grants look."""
        return self._asked(lambda locks: locks.sessions(grants)) if self._is_there() else {}

    def release(self, record: LeaseRecord) -> bool:
        """End this grant; return False if it has ended already."""
        return self._asked(lambda locks: locks.revoke(record.name, grant_id=record.grant_id)) is not None

    def _asked(self, ask: Callable[[Locks], T]) -> T | None:
        if not self._is_there():
            return None
        with self._opened() as locks:
            return ask(locks)


def refuse_other(record: LeaseRecord, token: int | None) -> None:
    """Raise `StateChanged` if the holder is not the one with `token`; None stands for any."""
    if token is not None and record.token != token:
        raise StateChanged(
            f"lock {record.name!r} has another holder now: {record.holder or 'unknown'} with token {record.token}, not "
            f"{token}. Nothing was done: look at it again"
        )


def gone_meanwhile(name: str) -> StateChanged:
    """Return the error for a grant that ended before it was taken away."""
    return StateChanged(f"lock {name!r} was released or taken by another holder meanwhile; nothing was done")


def leases_of(ledger: Ledger, locks: Callable[[], Locks] | None) -> LeasesInLedger | LeasesElsewhere:
    """Return the leases of the ledger's nodes. `locks` is their store, if this process has it open already."""
    if not ledger.url.is_file:
        return LeasesInLedger(ledger)
    from fencepost.leases.stores.sqlite import lease_file  # noqa: PLC0415 - SQLite only

    path = lease_file(StoreUrl.parse(ledger.url.lease_url()))

    @contextmanager
    def opened() -> Iterator[Locks]:
        if locks is not None:
            yield locks()
            return
        with connect(ledger.url.lease_url(), runtime=ledger.runtime) as own:
            yield own

    return LeasesElsewhere(opened, is_there=path.exists)


def leases_at(locks: Callable[[], Locks]) -> LeasesElsewhere:
    """Return the leases of a store that stays open."""

    @contextmanager
    def opened() -> Iterator[Locks]:
        yield locks()

    return LeasesElsewhere(opened)


def _rows_of(cursor: Cursor) -> Rows:
    def rows(sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        cursor.execute(sql, tuple(parameters))
        return list(cursor.fetchall())

    return rows
