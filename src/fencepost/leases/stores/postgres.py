"""Leases in tables of a PostgreSQL database.

URL: ``postgresql://user:password@host:5432/database``; several hosts, ``host1:5432,host2:5432``, are tried in turn
until one accepts writes. Options: ``prefix=fencepost_`` and ``schema=`` for the tables, ``history=90d`` for how long
ended grants are remembered, ``call_timeout=3s``, and for libpq ``host`` (the folder of a socket), ``sslmode``,
``sslrootcert``, ``sslcert``, ``sslkey``, ``sslcrl``, ``channel_binding``, ``require_auth``, ``gssencmode``,
``krbsrvname``, ``passfile``, ``application_name``, ``target_session_attrs``.

Grade: *durable*. The tables are created at the first start if they are missing.

Survives: a restart or crash of the server; loss of any client at any moment; a server that hangs (every call has a
deadline); a PgBouncer in between that pools by transaction (waiters then poll, and statements are not prepared).

Does not survive: the promotion of an asynchronous replica that lacks the last transactions. A lock whose grant was lost
with them may be granted again while its holder still trusts it; tokens still increase, by the clock, so fences work. A
server clock that jumps forward ends sessions early.

Required settings: ``synchronous_commit`` on (with synchronous standbys, remote_apply or on closes the gap at
promotion); a clock that is slewed, not stepped.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime
from fencepost.core.urls import StoreUrl
from fencepost.leases.store import Capabilities, Grade
from fencepost.leases.stores.sql import schema
from fencepost.leases.stores.sql.options import SHARED_OPTIONS, LeaseTables
from fencepost.leases.stores.sql.postgres_backend import PostgresBackend
from fencepost.leases.stores.sql.postgres_watch import PostgresWatch
from fencepost.leases.stores.sql.store import SqlLeaseStore
from fencepost.sql import postgres

CAPABILITIES = Capabilities(
    grade=Grade.DURABLE,
    watch=True,
    keeps_history=True,
    longest_watch_s=30.0,  # the listener checks every second, and notices if its connection is broken
    loses="what an asynchronous replica had not received when it is promoted",
)


def from_url(url: StoreUrl, runtime: Runtime) -> SqlLeaseStore:
    """Create the store, without connecting to the server yet."""
    url.only_options(SHARED_OPTIONS | postgres.URL_OPTIONS | {"schema"})
    tables = LeaseTables.of(url)
    backend = PostgresBackend(url, tables, runtime)
    return SqlLeaseStore(
        runtime,
        backend,
        capabilities=CAPABILITIES,
        call_timeout_s=url.call_timeout_s,
        history_us=tables.history_us,
        watch=lambda read, calls: PostgresWatch(
            runtime, backend, tables, calls=calls, read=read, timeout_s=url.call_timeout_s
        ),
    )


def schema_sql(url: StoreUrl) -> str:
    """Return the script that creates the tables, for an administrator."""
    return schema.text(schema.postgres(LeaseTables.of(url)))
