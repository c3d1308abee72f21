"""Locks and elections for applications that have their own scheduler.

::

    from fencepost import locks

    store = locks.connect("postgresql://…")
    with store.lock("settlement", ttl="30s") as lease:
        settle(token=lease.token)
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.core.events import Event, Observer, What
from fencepost.core.grants import LeaseRecord, PastGrant
from fencepost.core.runtime import Runtime
from fencepost.core.timings import Timings
from fencepost.errors import (
    FencepostError,
    LeaseLost,
    LockHeld,
    NotAcquired,
    StoreUnavailable,
    TickDone,
)
from fencepost.leases.current import current_lease
from fencepost.leases.election import Election
from fencepost.leases.exclusive import Skipped
from fencepost.leases.lease import Lease
from fencepost.leases.lock import Lock
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.observe.logs import log_event
from fencepost.threaded import ThreadedRuntime

__all__ = [
    "Election",
    "Event",
    "FencepostError",
    "Lease",
    "LeaseLost",
    "LeaseRecord",
    "Lock",
    "LockHeld",
    "Locks",
    "NotAcquired",
    "PastGrant",
    "Skipped",
    "StoreUnavailable",
    "TickDone",
    "Timings",
    "What",
    "connect",
    "current_lease",
]


def connect(
    url: str,
    *,
    holder: str | None = None,
    observers: Iterable[Observer] = (),
    runtime: Runtime | None = None,
) -> Locks:
    """Connect to the store at `url`. Raises `UnsafeStore` if locks kept there would not be safe.

    Args:
        url: ``sqlite:///app.db``, ``postgresql://…``, ``postgresql+advisory://…``, ``mysql://…``, ``redis://…``,
            ``redis+sentinel://…``, ``etcd://…``, ``zookeeper://…``, ``kubernetes://namespace`` or ``memory://``.
        holder: the name of this machine in the records, instead of its host name. The process id and a
            random part are always appended.
        observers: called with every `Event`, on the thread that emits it. Events are always logged as well.
        runtime: replaces clocks and threads in simulations and tests.
    """
    world = runtime or ThreadedRuntime()
    connected = Locks(store_from_url(url, world), runtime=world, holder=holder, observers=[log_event, *observers])
    connected.start()
    return connected
