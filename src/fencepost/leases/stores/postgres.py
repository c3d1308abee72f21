"""Leases in tables of a PostgreSQL database.

URL: ``postgresql://user:password@host:5432/database``; several hosts, ``host1:5432,host2:5432``, are tried in turn
until one takes writes. Options: ``prefix=fencepost_`` and ``schema=`` for the tables, ``history=90d`` for how long
ended grants are remembered, ``call_timeout=3s``, and of libpq ``host`` (a socket's folder), ``sslmode``,
``sslrootcert``, ``sslcert``, ``sslkey``, ``sslcrl``, ``channel_binding``, ``require_auth``, ``gssencmode``,
``krbsrvname``, ``passfile``, ``application_name``, ``target_session_attrs``.

Grade: *durable*. The tables are made at the first start if they are missing.

Survives: a restart or crash of the server; loss of any client at any moment; a server that hangs (every call ends in
time); a transaction-pooling PgBouncer in between (waiting then polls, and statements are not prepared).

Does not survive: the promotion of an asynchronous replica that lacks the last transactions. A grant that was lost with
them may be given out again while its holder still trusts it; tokens rise all the same, by the clock, and fences hold.
A server clock that leaps forward ends sessions early.

Settings to make: ``synchronous_commit`` on (remote_apply or on, with synchronous standbys, closes the gap at
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
    durable_token=True,
    server_clock=True,
    watch=True,
    keeps_history=True,
    longest_watch_s=30.0,  # whoever listens looks every second, and notices that its connection is broken
    loses="what an asynchronous replica had not received when it is promoted",
)


def from_url(url: StoreUrl, runtime: Runtime) -> SqlLeaseStore:
    """Build the store; the server is first asked in `start`."""
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
    """Return the script that makes the tables, for an administrator to run."""
    return schema.text(schema.postgres(LeaseTables.of(url)))
