"""The base of all cases: connections, contenders and unrenewed sessions, which end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, ClassVar

import pytest

from fencepost.core.events import Event
from fencepost.core.grants import Grant, Session
from fencepost.errors import StoreUnavailable
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.leases.store import LeaseStore
from fencepost.testing.contenders import Contender, ProcessContender, ThreadContender
from fencepost.testing.under_test import StoreUnderTest
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()
HOUR_S = 3600.0

Connect = Callable[..., Locks]
Contend = Callable[..., Contender]


class Stand:
    """Fixtures and helpers that all cases share."""

    store_name: ClassVar[str]
    ttl_s: ClassVar[float] = 3.0  # tests wait for its end; with less, a busy machine loses leases
    racers: ClassVar[int] = 8  # contenders for one lock at once; tests of some stores have fewer
    rounds_per_racer: ClassVar[int] = 12  # grants of each; every one changes a counter that no two may change at once
    grants_in_turn: ClassVar[int] = 1000  # over which tokens have to rise; tests of some stores have fewer
    slack_s: ClassVar[float] = 2.0  # how late a busy machine may be; nothing may be early

    @pytest.fixture
    def name(self, request: pytest.FixtureRequest) -> str:
        """Return a new lock name."""
        return f"{request.node.name}/{RUNTIME.new_id()[:8]}"

    @pytest.fixture
    def store(self, server: StoreUnderTest) -> Iterator[LeaseStore]:
        """Yield the store itself, without a keeper that renews."""
        store = store_from_url(server.url, RUNTIME)
        store.start()
        yield store
        store.shutdown()

    @pytest.fixture
    def connect(self, server: StoreUnderTest) -> Iterator[Connect]:
        """Yield a function that connects as another node. All are closed at the end."""
        with ExitStack() as stack:

            def connect(store: LeaseStore | None = None, observer: Callable[[Event], None] | None = None) -> Locks:
                locks = Locks(
                    store or store_from_url(server.url, RUNTIME),
                    runtime=RUNTIME,
                    observers=[observer] if observer else [],
                )
                stack.callback(locks.close)
                locks.start()
                return locks

            yield connect

    @pytest.fixture
    def contend(self, server: StoreUnderTest, store: LeaseStore) -> Iterator[Contend]:
        """Yield a function that starts a contender. All are ended with the test."""
        kind = ThreadContender if store.capabilities.scope == "process" else ProcessContender
        with ExitStack() as stack:

            def contend(**options: Any) -> Contender:
                contender = kind(server.url, **options)
                stack.callback(contender.end)
                return contender

            yield contend

    def open(self, store: LeaseStore, holder: str = "somebody") -> Session:
        """Open a session that is not renewed."""
        return store.open(holder, ttl_s=self.ttl_s, call_timeout_s=20.0)

    def take(self, store: LeaseStore, session: Session, name: str, **wishes: Any) -> Grant:
        """Acquire a lock, and fail if that is not granted."""
        outcome = store.acquire(session, name, grant_id=RUNTIME.new_id(), **wishes)
        assert isinstance(outcome, Grant), outcome
        return outcome

    @staticmethod
    def answer(store: LeaseStore, session: Session, name: str, grant_id: str) -> object:
        """Try once to acquire; None if there was no reply."""
        try:
            return store.acquire(session, name, grant_id=grant_id)
        except StoreUnavailable:
            return None

    @classmethod
    def granted(cls, store: LeaseStore, session: Session, name: str, grant_id: str) -> Grant | None:
        """Try once to acquire; None unless it was granted."""
        outcome = cls.answer(store, session, name, grant_id)
        return outcome if isinstance(outcome, Grant) else None
