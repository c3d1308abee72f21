"""A store that fails on command, to test stores without a network connection to cut."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, PastGrant, Renewed, Session
from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable
from fencepost.leases.store import Capabilities, KeepsHistory, LeaseStore

T = TypeVar("T")


class FaultyStore:
    """Wraps a store. Counts calls in `calls`; `hang`, `lose_replies` and `heal` change how they end.

    A call that hangs raises `StoreUnavailable` after `call_timeout_s`, as with a real driver. A renewal hangs until
    `heal`, which is worse than with any driver.
    """

    def __init__(self, store: LeaseStore, call_timeout_s: float = 3.0) -> None:
        self._store = store
        self._call_timeout_s = call_timeout_s
        self._flows = threading.Event()
        self._flows.set()
        self._replies_are_lost = False
        self.calls: dict[str, int] = {}

    def hang(self) -> None:
        """From now on, let calls hang without effect."""
        self._flows.clear()

    def lose_replies(self) -> None:
        """From now on, let calls take effect and then fail."""
        self._replies_are_lost = True

    def heal(self) -> None:
        """Work normally again."""
        self._replies_are_lost = False
        self._flows.set()

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    def start(self) -> tuple[str, ...]:
        return self._do("start", self._store.start)

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        return self._do("open", lambda: self._store.open(holder, ttl_s=ttl_s, call_timeout_s=call_timeout_s))

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        self._flows.wait()
        return self._do("renew", lambda: self._store.renew(session, grants))

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        return self._do(
            "acquire", lambda: self._store.acquire(session, name, grant_id=grant_id, tick=tick, floor=floor)
        )

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        return self._do("release", lambda: self._store.release(grant, done=done, keep_for_s=keep_for_s))

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        return self._do("missing", lambda: self._store.missing(grants))

    def close(self, session: Session) -> None:
        self._do("close", lambda: self._store.close(session))

    def read(self, name: str) -> LeaseRecord | None:
        return self._do("read", lambda: self._store.read(name))

    def records(self) -> Iterator[LeaseRecord]:
        return self._do("records", self._store.records)

    def history(self, name: str | None, *, limit: int) -> list[PastGrant]:
        store = self._store
        return store.history(name, limit=limit) if isinstance(store, KeepsHistory) else []

    def revoke(self, record: LeaseRecord) -> bool:
        return self._do("revoke", lambda: self._store.revoke(record))

    def wait_change(self, held: Held, timeout_s: float) -> None:
        self._do("wait_change", lambda: self._store.wait_change(held, timeout_s))

    def shutdown(self) -> None:
        self._store.shutdown()

    def forget_connections(self) -> None:
        self._store.forget_connections()

    def _do(self, name: str, call: Callable[[], T]) -> T:
        self.calls[name] = self.calls.get(name, 0) + 1
        if not self._flows.wait(self._call_timeout_s):
            raise StoreUnavailable("the store hangs (an injected fault)")
        result = call()
        if self._replies_are_lost:
            raise StoreUnavailable("the reply was lost (an injected fault)")
        return result
