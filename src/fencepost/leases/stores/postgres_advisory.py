"""Leases as PostgreSQL advisory locks, each session on its own connection.

URL: ``postgresql+advisory://user:password@host:5432/database``, with the options of ``postgresql://``. PostgreSQL 14 or
later. A name is locked under a 64-bit key: the first eight bytes of SHA-256 of ``fencepost:`` and the name, read as a
signed big-endian integer. Token, tick, at-least and history are stored in the same tables as those of
``postgresql://``, and the two stores respect each other's locks.

Grade: *best effort*, for one reason: the lock depends on a TCP connection. If that breaks while both ends are alive (a
firewall, a proxy, a restart of the server), the lock is free at once, and its holder notices only at its next renewal.
Until then two processes may believe that they hold it, so protect writes with the token. In exchange, a holder that is
killed is replaced at once, not after a ttl.

Survives: loss of any client at any moment (a killed one is replaced at once, a stopped or unreachable one within its
ttl, to which ``idle_session_timeout`` is set); a server that hangs.

Does not survive: a broken connection, or a call without a reply in time: that session is lost. A restart or failover of
the server ends all sessions. A proxy that pools by transaction or statement is refused at the start
(``accept_risk=pooled-sessions``); one that pools by session works.

Required settings: those of ``postgresql://``, and one more connection for each process that holds locks.
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
    watch=False,
    keeps_history=True,
    loses="every lock, when the server restarts or the connection breaks",
)


def from_url(url: StoreUrl, runtime: Runtime) -> AdvisoryStore:
    """Create the store, without connecting to the server yet."""
    url.only_options(SHARED_OPTIONS | postgres.URL_OPTIONS | {"schema"})
    tables = LeaseTables.of(url)
    backend = PostgresBackend(url, tables, runtime)
    return AdvisoryStore(runtime, backend, tables, url, capabilities=CAPABILITIES)
