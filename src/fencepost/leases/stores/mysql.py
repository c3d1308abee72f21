"""Leases in tables of a MySQL or MariaDB database.

URL: ``mysql://user:password@host:3306/database`` or ``mariadb://…``, which are equivalent. Options:
``prefix=fencepost_`` for the tables, ``history=90d`` for how long ended grants are remembered, ``call_timeout=3s``,
``ssl_ca``, ``ssl_cert``, ``ssl_key`` (files; with ``ssl_ca`` the server's name and certificate are verified),
``unix_socket``.

Grade: *durable*. The tables are created at the first start if they are missing.

Survives: a restart or crash of the server; loss of any client at any moment; a server that hangs (every call has a
deadline); deadlocks (retried a few times).

Does not survive: failover to an asynchronous replica that lacks the last transactions. A lock whose grant was lost with
them may be granted again while its holder still trusts it; tokens still increase, by the clock, so fences work. A
Galera cluster is refused (``accept_risk=galera``), and so is a group with several primaries
(``accept_risk=multi-primary``). A server clock that jumps forward ends sessions early. A client that is stopped in the
middle of a takeover blocks that name: on MariaDB for the call timeout, on MySQL for a minute.

Required settings: ``innodb_flush_log_at_trx_commit=1``; a binary log, if there is one, in ROW or MIXED format; a clock
that is slewed, not stepped.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime
from fencepost.core.urls import StoreUrl
from fencepost.leases.store import Capabilities, Grade
from fencepost.leases.stores.sql import schema
from fencepost.leases.stores.sql.mysql_backend import MysqlBackend
from fencepost.leases.stores.sql.options import SHARED_OPTIONS, LeaseTables
from fencepost.leases.stores.sql.store import SqlLeaseStore
from fencepost.leases.stores.sql.waiting import Polling
from fencepost.sql import mysql

CAPABILITIES = Capabilities(
    grade=Grade.DURABLE,
    watch=False,
    keeps_history=True,
    loses="what an asynchronous replica had not received when it takes over",
)
_POLL_S = 0.1  # how late a waiter may notice a release, at ten cheap queries per second


def from_url(url: StoreUrl, runtime: Runtime) -> SqlLeaseStore:
    """Create the store, without connecting to the server yet."""
    url.only_options(SHARED_OPTIONS | mysql.URL_OPTIONS)
    tables = LeaseTables.of(url)
    return SqlLeaseStore(
        runtime,
        MysqlBackend(url, tables, runtime),
        capabilities=CAPABILITIES,
        call_timeout_s=url.call_timeout_s,
        history_us=tables.history_us,
        watch=lambda read, _: Polling(runtime, read, interval_s=_POLL_S),
    )


def schema_sql(url: StoreUrl) -> str:
    """Return the script that creates the tables, for an administrator."""
    return schema.text(schema.mysql(LeaseTables.of(url)))
