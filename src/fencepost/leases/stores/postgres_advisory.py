"""Leases as PostgreSQL advisory locks, each session on a connection of its own.

URL: ``postgresql+advisory://user:password@host:5432/database``, with the options of ``postgresql://``. PostgreSQL 14 or
later. A name is locked under a 64-bit key: the first eight bytes of SHA-256 of ``fencepost:`` and the name, read as a
signed big-endian integer. Token, tick, at-least and history are kept in the same tables as those of ``postgresql://``,
and the two respect each other's locks.

Grade: *best effort*, for one reason: the lock hangs on a TCP connection. When that breaks while both ends live (a
firewall, a proxy, a restart of the server), the lock is free at once, and its holder learns of it only at its next
renewal. Until then two may believe that they hold it: guard writes by the token. In exchange, a holder that is killed
is replaced at once, not after a ttl.

Survives: loss of any client at any moment (a killed one is replaced at once, one that is stopped or out of reach within
its ttl: ``idle_session_timeout`` is set to it); a server that hangs.

Does not survive: a break of the connection, or a call that is not answered in time: that session is lost. A restart or
failover of the server ends all sessions. A proxy that pools by transaction or statement is refused at the start
(``accept_risk=pooled-sessions``); one that pools by session works.

Settings to make: as for ``postgresql://``; a connection per process that holds locks, on top of the pool's.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime
from fencepost.core.urls import StoreUrl
from fencepost.leases.store import Capabilities, Grade
from fencepost.leases.stores.sql.advisory_store import AdvisoryStore
from fencepost.leases.stores.sql.options import SHARED_OPTIONS, LeaseTables
from fencepost.leases.stores.sql.postgres_backend import PostgresBackend
from fencepost.sql import postgres

CAPABILITIES = Capabilities(
    grade=Grade.BEST_EFFORT,
    durable_token=True,
    server_clock=True,
    watch=False,
    keeps_history=True,
    loses="every lock, when the server restarts or the connection breaks",
)


def from_url(url: StoreUrl, runtime: Runtime) -> AdvisoryStore:
    """Build the store; the server is first asked in `start`."""
    url.only_options(SHARED_OPTIONS | postgres.URL_OPTIONS | {"schema"})
    tables = LeaseTables.of(url)
    backend = PostgresBackend(url, tables, runtime)
    return AdvisoryStore(runtime, backend, tables, url, capabilities=CAPABILITIES)
