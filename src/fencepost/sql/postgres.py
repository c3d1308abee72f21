"""URL, clock and session settings of PostgreSQL, and requirements on a server, without a driver."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from fencepost.core.urls import StoreUrl

NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The server's time in µs when it is read, not at the start of the transaction."""

_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding")
_LOGIN = ("require_auth", "gssencmode", "krbsrvname", "passfile")
URL_OPTIONS = frozenset(("host", "application_name", "target_session_attrs", *_TLS, *_LOGIN))
"""Options of a URL that are passed to libpq unchanged."""

OLDEST_VERSION = 120000  # PostgreSQL 12, the first with AS MATERIALIZED
READ_COMMITTED = ("default_transaction_isolation", "read committed")
SERVER_SQL = (
    "SELECT current_setting('server_version_num')::int, current_setting('server_version'), "
    "current_setting('transaction_read_only') = 'on', pg_is_in_recovery(), "
    "current_setting('client_encoding') = 'SQL_ASCII', current_setting('synchronous_commit'), current_setting('fsync')"
)

_DEFAULT_PORT = 5432
_LEAST_CONNECT_S = 2  # libpq accepts whole seconds, and treats one as two
_KEEPALIVES = 3  # lost probes until the connection counts as broken; one may be an accident
_LIMITS = ("statement_timeout", "lock_timeout")
_SILENCE = "idle_in_transaction_session_timeout"


class ServerFacts(NamedTuple):
    """The result of `SERVER_SQL`."""

    version: int
    spelled_version: str
    is_read_only: bool
    is_in_recovery: bool
    has_bytes_for_texts: bool
    synchronous_commit: str
    fsync: str

    def objection(self, product: str, *, who_needs_it: str) -> str | None:
        """Return why `who_needs_it` ("the ledger") cannot work on this server; None if it can."""
        if self.has_bytes_for_texts:
            return (
                f"{product}: this database has the encoding SQL_ASCII, which does not define what bytes mean. Use one "
                "created with ENCODING 'UTF8'; or, if all texts in it are UTF-8, run: ALTER DATABASE … SET "
                "client_encoding = 'UTF8'"
            )
        if self.version < OLDEST_VERSION:
            return f"{product} is version {self.spelled_version}; PostgreSQL 12 or later is needed"
        if self.is_in_recovery or self.is_read_only:
            what = "a standby" if self.is_in_recovery else "read-only"
            return f"{product} is {what}: {who_needs_it} the primary; name it, or list all hosts in the URL"
        return None


def product(url: StoreUrl) -> str:
    """Return the server's product and hosts, for messages."""
    return f"PostgreSQL at {', '.join(host for host, _ in url.hosts) or 'the local socket'}"


def connect_options(url: StoreUrl, timeout_s: float) -> dict[str, Any]:
    """Return the keyword arguments for psycopg and libpq. Several hosts are tried in turn until one accepts writes."""
    limit_s = max(_LEAST_CONNECT_S, math.ceil(timeout_s))
    known: dict[str, Any] = {
        "host": ",".join(host for host, _ in url.hosts) or None,
        "port": ",".join(str(port or _DEFAULT_PORT) for _, port in url.hosts) or None,
        "user": url.user,
        "password": url.password,
        "dbname": url.path.strip("/") or None,
        "target_session_attrs": "read-write" if len(url.hosts) > 1 else None,
        "application_name": "fencepost",
    }
    passed = {name: value for name, value in url.options.items() if name in URL_OPTIONS}
    given = {name: value for name, value in (known | passed).items() if value is not None}
    return given | {
        "connect_timeout": limit_s,
        "keepalives_idle": limit_s,
        "keepalives_interval": limit_s,
        "keepalives_count": _KEEPALIVES,
        "tcp_user_timeout": limit_s * 2000,
        "autocommit": True,
    }


def limit_settings(timeout_s: float, silence_s: float) -> list[tuple[str, str]]:
    """Return the limits that the server enforces: an abandoned statement or transaction must not keep its locks.

    The server disconnects a client that is idle in a transaction for `silence_s`.
    """
    limits = [(name, str(math.ceil(timeout_s * 1000))) for name in _LIMITS]
    return [*limits, (_SILENCE, str(math.ceil(silence_s * 1000)))]


def set_session_sql(settings: Sequence[tuple[str, str]]) -> str:
    """Return the statement that sets `settings`, which must be trusted text, for the whole session."""
    return "SELECT " + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings)


def set_local_sql(settings: Sequence[tuple[str, str]]) -> str:
    """Return the SQL that follows BEGIN to set `settings` for one transaction."""
    return "".join(f"; SET LOCAL {name} = {value}" for name, value in settings)
