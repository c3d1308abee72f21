"""A session and a grant at a store whose calls may take so little time that a busy machine uses it up."""

from __future__ import annotations

from typing import Any

from fencepost.core.grants import Grant, Renewed, Session
from fencepost.errors import StoreUnavailable
from fencepost.threaded import ThreadedRuntime
from testbed import wait

RUNTIME = ThreadedRuntime()


def prepared(store: Any, name: str, *, ttl_s: float, call_timeout_s: float) -> tuple[Session, Grant]:
    """Open a session, take `name` and renew it, however often that is not answered in time."""

    def insist(call: Any) -> Any:
        return wait.until(call, 30, ignoring=(StoreUnavailable,))

    grant_id = RUNTIME.new_id()  # so that what was got without an answer is got again
    session = insist(lambda: store.open("somebody", ttl_s=ttl_s, call_timeout_s=call_timeout_s))
    grant = insist(lambda: store.acquire(session, name, grant_id=grant_id))
    assert isinstance(grant, Grant), grant
    assert insist(lambda: store.renew(session, [grant])) == Renewed()
    return session, grant
