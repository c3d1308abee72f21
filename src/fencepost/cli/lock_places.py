"""Where ``fencepost locks`` looks: at a store (``--store``), at a ledger's leases (``--ledger``), or at a server's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from fencepost.cli.exec_options import STORE_VARIABLE
from fencepost.cli.ledger_options import front, needed_reason, who
from fencepost.cli.remote.server import chosen_server
from fencepost.core.names import NODE_LEASE, lock_name
from fencepost.core.urls import StoreUrl, sqlite_path
from fencepost.errors import ConfigurationError, LockHeld, NoSuchLock
from fencepost.leases.schemes import store_from_url
from fencepost.locks import connect

if TYPE_CHECKING:
    from fencepost.app.lock_operations import LockOperations
    from fencepost.app.records import LockRecord, PastLockRecord
    from fencepost.leases.locks import Locks

_PAGE = 500  # locks in one query; a page with fewer is the last one


class LockPlace(NamedTuple):
    """What the options say: a store, a ledger, and whether its application's other store is meant."""

    store: str
    ledger: str
    is_other: bool = False


class StoreLocks:
    """The locks of a store that was named by its URL. It keeps no audit."""

    def __init__(self, locks: Locks) -> None:
        """Ask `locks`."""
        self._locks = locks

    def records(self, *, every: bool) -> list[LockRecord]:
        """Return all locks; with `every`, also the sessions of nodes that are gone."""
        from fencepost.app.records import LockRecord  # noqa: PLC0415 - it loads the engine

        found = [LockRecord.of(each) for each in self._locks.records()]
        return [each for each in found if every or each.held or not each.name.startswith(NODE_LEASE)]

    def show(self, name: str) -> LockRecord:
        """Return one lock, or raise `NoSuchLock`."""
        from fencepost.app.records import LockRecord  # noqa: PLC0415 - it loads the engine

        found = self._locks.read(lock_name(name))
        if found is None:
            raise NoSuchLock(name)
        return LockRecord.of(found)

    def history(self, name: str | None, *, limit: int) -> list[PastLockRecord] | None:
        """Return ended grants, or None if the store keeps none."""
        from fencepost.app.records import PastLockRecord  # noqa: PLC0415 - it loads the engine

        found = self._locks.history(name, limit=limit)
        return None if found is None else [PastLockRecord.of(each) for each in found]

    def on_record(self, by: str, reason: str) -> tuple[str, str]:
        """Refuse what a store does not keep."""
        if by or reason:
            raise ConfigurationError(
                "a store keeps no record of who released a lock, and why: leave out --by and --reason, or give "
                "--ledger URL instead of --store, where the leases are those of a ledger"
            )
        return "", ""

    def release(self, lock: LockRecord, *, by: str, reason: str) -> bool:
        """Take a lock away from the holder that was shown; return False if that one does not hold it any more."""
        return self._locks.revoke(lock.name, grant_id=lock.grant_id) is not None

    def reset(self, name: str, *, by: str, reason: str) -> int:
        """Bring back the token of a lock; return the new one."""
        try:
            return self._locks.reset(name, reason=reason).token
        except LockHeld as held:
            raise ConfigurationError(f"{held}; end its holder, or run: fencepost locks release {name}") from None


class NoLocks(StoreLocks):
    """The locks of a SQLite database beside which there is no file of leases yet: looking does not make it."""

    def __init__(self) -> None:
        """Ask nothing."""

    def records(self, *, every: bool) -> list[LockRecord]:
        """Return none."""
        return []

    def show(self, name: str) -> LockRecord:
        """Raise `NoSuchLock`."""
        raise NoSuchLock(lock_name(name))

    def history(self, name: str | None, *, limit: int) -> list[PastLockRecord] | None:
        """Return none."""
        return []


class LedgerLocks:
    """The locks of a ledger, or of a server's: what is done is in the audit."""

    def __init__(self, locks: LockOperations, store: str) -> None:
        """Ask `locks` for those of `store`."""
        self._locks = locks
        self._store = store

    def records(self, *, every: bool) -> list[LockRecord]:
        """Return all locks, read page by page. The sessions of nodes are never among them."""
        if every:
            raise ConfigurationError("--all is for --store: fencepost nodes --all shows nodes that are gone")
        pages: list[list[LockRecord]] = []
        while not pages or len(pages[-1]) == _PAGE:
            after = pages[-1][-1].name if pages else ""
            pages.append(self._locks.list(store=self._store, after=after, limit=_PAGE))
        return list(chain.from_iterable(pages))

    def show(self, name: str) -> LockRecord:
        """Return one lock, or raise `NoSuchLock`."""
        return self._locks.show(lock_name(name), store=self._store)

    def history(self, name: str | None, *, limit: int) -> list[PastLockRecord] | None:
        """Return ended grants, or None if the store keeps none."""
        return self._locks.history(name, store=self._store, limit=limit)

    def on_record(self, by: str, reason: str) -> tuple[str, str]:
        """Return who acts, and why."""
        return who(by), needed_reason(reason)

    def release(self, lock: LockRecord, *, by: str, reason: str) -> bool:
        """Take a lock away from the holder that was shown; return False if nobody holds it any more."""
        done = self._locks.release(lock.name, by=by, reason=reason, token=lock.token, store=self._store)
        return done.released

    def reset(self, name: str, *, by: str, reason: str) -> int:
        """Bring back the token of a lock; return the new one."""
        return self._locks.reset(name, by=who(by), reason=reason, store=self._store).token


@contextmanager
def reached(place: LockPlace) -> Iterator[StoreLocks | LedgerLocks]:
    """Connect to what the options and the environment say; an option counts more than the environment."""
    store = _store_of(place)
    if store and place.is_other:
        raise ConfigurationError("--leases is for --ledger and --server: a store has no other one")
    if store and _is_not_made_yet(store):
        yield NoLocks()
        return
    if store:
        with connect(store) as locks:
            yield StoreLocks(locks)
        return
    with front(place.ledger) as ops:
        yield LedgerLocks(ops.locks, "leases" if place.is_other else "ledger")


def _is_not_made_yet(text: str) -> bool:
    """Whether a SQLite database has no file of leases yet. If there is no such database either, refuse its URL."""
    if not text.lower().startswith("sqlite:"):
        return False
    from fencepost.leases.stores.sqlite import lease_file  # noqa: PLC0415 - SQLite only
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    store_from_url(text, ThreadedRuntime())  # opens nothing, and refuses wrong options
    url = StoreUrl.parse(text)
    leases = lease_file(url)
    if leases.exists():
        return False
    if (database := sqlite_path(url.path.removeprefix("/"))).exists() and ".leases" not in database.suffixes:
        return True
    message = f"there is no store at {leases} (the leases of {url}): is the URL right?"
    if database.name.endswith(f".leases{database.suffix}"):
        beside = str(url).replace(f".leases{database.suffix}", database.suffix)
        message += f" Write the URL of the database beside it: {beside}"
    raise ConfigurationError(message)


def _store_of(place: LockPlace) -> str:
    """Return the store to connect to; empty if a ledger or a server is to be asked."""
    if place.store and place.ledger:
        raise ConfigurationError("give --store or --ledger, not both")
    server = chosen_server(place.ledger)
    is_said = server is not None and server.is_said
    if place.store and is_said:
        raise ConfigurationError("give --server or --store, not both: a server has its own stores")
    if place.store:
        return place.store
    if place.ledger or is_said:
        return ""
    store = os.environ.get(STORE_VARIABLE, "")
    if not store and server is None:
        raise ConfigurationError(
            f"which store? Give --store URL or set {STORE_VARIABLE}; for the leases of a ledger, give --ledger URL"
        )
    return store


def needs_terminal() -> bool:
    """Whether there is no terminal to ask on."""
    return not sys.stdin or not sys.stdin.isatty()
