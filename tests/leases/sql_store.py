"""What the tests of the SQL stores share: opening, taking, counting statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.core.grants import Grant, Session
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.sql.store import SqlLeaseStore
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()


@contextmanager
def started(url: str) -> Iterator[SqlLeaseStore]:
    """Yield a store that was started; shut it down at the end."""
    store = store_from_url(url, RUNTIME)
    assert isinstance(store, SqlLeaseStore)
    store.start()
    yield store
    store.shutdown()


def opened(
    store: SqlLeaseStore, holder: str = "somebody", *, ttl_s: float = 60.0, call_timeout_s: float = 20.0
) -> Session:
    return store.open(holder, ttl_s=ttl_s, call_timeout_s=call_timeout_s)


def taken(store: SqlLeaseStore, session: Session, name: str, **wishes: Any) -> Grant:
    outcome = store.acquire(session, name, grant_id=RUNTIME.new_id(), **wishes)
    assert isinstance(outcome, Grant), outcome
    return outcome


def expired(store: SqlLeaseStore, name: str, *, ttl_s: float = 0.25) -> Grant:
    """Return a grant whose session has run out and was not buried yet."""
    from testbed import wait

    grant = taken(store, opened(store, "mortal", ttl_s=ttl_s), name)
    wait.until(lambda: store.missing([grant]), 30, what="the session runs out")
    return grant


class Counted:
    """Counts the statements each connection of a store executes."""

    def __init__(self, store: SqlLeaseStore) -> None:
        self.statements: list[str] = []
        for calls in (store._calls, store._heartbeats):
            self._count(calls.pool)

    def _count(self, pool: Any) -> None:
        connect = pool._make
        pool._make = lambda timeout_s: _Counting(connect(timeout_s), self.statements.append)
        pool.drop_idle()

    def during(self, act: Callable[[], object]) -> list[str]:
        """Return the statements of `act`, once its connections are there."""
        act()
        self.statements.clear()
        act()
        return list(self.statements)


class _Counting:
    """A connection that notes what it is asked to do."""

    def __init__(self, connection: Any, note: Callable[[str], None]) -> None:
        object.__setattr__(self, "_connection", connection)
        object.__setattr__(self, "_note", note)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._connection, name)
        if name not in {"rows", "change", "number", "end_grant", "begin", "commit"}:
            return member

        def noted(*arguments: Any) -> Any:
            self._note(f"{name} {arguments[0] if arguments else ''}")
            return member(*arguments)

        return noted

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._connection, name, value)
