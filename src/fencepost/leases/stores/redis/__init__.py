"""Leases on one Redis or Valkey server, or on a set of them watched over by Sentinel.

URLs::

    redis://user:password@host:6379/0               also valkey://
    rediss://host:6379/0?ca=/etc/tls/ca.crt         TLS; cert= and key= for a client certificate
    redis+sentinel://host:26379,host:26379/name-of-primary/0?sentinel_password=…

Options: ``prefix`` (default ``fencepost``), ``call_timeout``, ``accept_risk``.

**Grade**: *best effort*.

**How.** One hash per lock name, changed only by Lua scripts, whose clock is the server's. It outlives the
hold, so tokens rise; a token is also never below the server's time, so they rise after the record is gone as
well. A session is known to its process alone: each grant has an expiry of its own, and a renewal prolongs all
of them in one pipeline, never one that has expired.

**Survives**: a holder that dies or is paused (expiry), lost replies (the same grant is answered again), broken
connections, a script cache that was flushed, records deleted by hand or by FLUSHALL (the holder is told at its
next renewal; the next token is higher), clients' clocks that are wrong; with an append-only file, a restart.

**Does not survive**: a server that forgets (restart without append-only file, FLUSHALL, eviction), and a
replica that is promoted without the last grants: there may then be two holders until the first is told, at its
next renewal. Tokens rise nevertheless, as long as the new primary's clock is not behind by more than the time
since the last grant it knows. Ticks that were marked as done may be forgotten in the same ways, and are
forgotten 30 days after a name was last released.

**Settings to make**: ``maxmemory-policy noeviction`` (anything else is refused), ``appendonly yes``; with
replicas ``min-replicas-to-write 1``. Redis Cluster, read-only replicas and servers before version 5 are refused.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime
from fencepost.leases.stores.redis.store import RedisStore
from fencepost.leases.urls import StoreUrl


def from_url(url: StoreUrl, runtime: Runtime) -> RedisStore:
    """Build the store without touching the server."""
    return RedisStore(url, runtime)
