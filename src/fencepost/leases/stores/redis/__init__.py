"""Leases on one Redis or Valkey server, or on a group of them monitored by Sentinel.

URLs::

    redis://user:password@host:6379/0               also valkey://
    rediss://host:6379/0?ca=/etc/tls/ca.crt         TLS; cert= and key= for a client certificate
    redis+sentinel://host:26379,host:26379/name-of-primary/0?sentinel_password=…

Options: ``prefix`` (default ``fencepost``), ``call_timeout``, ``accept_risk``.

**Grade**: *best effort*.

**Design.** Each lock name has one hash, which only Lua scripts change, by the server's clock. It outlives the hold, so
tokens increase. A token is also never below the server's time, so tokens increase even after the record is lost. The
server does not know sessions: each grant has its own expiry, and a renewal extends all of them in one pipeline, except
those that have expired.

**Survives**: a holder that dies or is paused (expiry), lost replies (a repeated request returns the same grant), broken
connections, a flushed script cache, records deleted by hand or by FLUSHALL (the holder notices at its next renewal; the
next token is higher), wrong clocks of clients; with an append-only file, a restart.

**Does not survive**: a server that loses data (restart without append-only file, FLUSHALL, eviction), and the promotion
of a replica that lacks the last grants: there may then be two holders until the first one notices, at its next renewal.
Tokens still increase, as long as the new primary's clock is not behind by more than the time since the last grant that
it knows. Ticks marked as done may be lost in the same ways, and are removed 30 days after a name was last released.

**Required settings**: ``maxmemory-policy noeviction`` (anything else is refused), ``appendonly yes``; with replicas
``min-replicas-to-write 1``. Redis Cluster, read-only replicas and servers before version 5 are refused.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime
from fencepost.leases.stores.redis.store import RedisStore
from fencepost.leases.urls import StoreUrl


def from_url(url: StoreUrl, runtime: Runtime) -> RedisStore:
    """Create the store, without connecting to the server yet."""
    return RedisStore(url, runtime)
