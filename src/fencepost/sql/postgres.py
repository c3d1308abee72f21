"""PostgreSQL without a driver: its URL, clock, session settings, and what a server must be like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from fencepost.core.urls import StoreUrl

NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The server's time in µs at the moment it is read, not at the begin of the transaction."""

_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding")
_LOGIN = ("require_auth", "gssencmode", "krbsrvname", "passfile")
URL_OPTIONS = frozenset(("host", "application_name", "target_session_attrs", *_TLS, *_LOGIN))
"""Options of a URL that are handed to libpq as they are."""

OLDEST_VERSION = 120000
READ_COMMITTED = ("default_transaction_isolation", "read committed")
SERVER_SQL = (
    "SELECT current_setting('server_version_num')::int, current_setting('server_version'), "
    "current_setting('transaction_read_only') = 'on', pg_is_in_recovery(), "
    "current_setting('client_encoding') = 'SQL_ASCII', current_setting('synchronous_commit'), current_setting('fsync')"
)

_DEFAULT_PORT = 5432
_LEAST_CONNECT_S = 2  # libpq takes whole seconds, and less than two for two
_KEEPALIVES = 3
_LIMITS = ("statement_timeout", "lock_timeout")
_SILENCE = "idle_in_transaction_session_timeout"


class ServerFacts(NamedTuple):
    """The answer to `SERVER_SQL`."""

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
                f"{product}: this database has the encoding SQL_ASCII, in which a text is only bytes. Use one that was "
                "made with ENCODING 'UTF8'; or, if all texts in it are UTF-8, run: ALTER DATABASE … SET "
                "client_encoding = 'UTF8'"
            )
        if self.version < OLDEST_VERSION:
            return f"{product} is version {self.spelled_version}; PostgreSQL 12 or later is needed"
        if self.is_in_recovery or self.is_read_only:
            what = "a standby" if self.is_in_recovery else "read-only"
            return f"{product} is {what}: {who_needs_it} the primary; name it, or list all hosts in the URL"
        return None


def product(url: StoreUrl) -> str:
    """Return the server's name and place, for messages."""
    return f"PostgreSQL at {', '.join(host for host, _ in url.hosts) or 'the local socket'}"


def connect_options(url: StoreUrl, timeout_s: float) -> dict[str, Any]:
    """Return the keywords for psycopg and libpq. Several hosts are tried in turn until one takes writes."""
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
    """Return the server's own limits: an abandoned statement or transaction must not hold locks for long.

    A client that is silent within a transaction for `silence_s` is cut off.
    """
    limits = [(name, str(math.ceil(timeout_s * 1000))) for name in _LIMITS]
    return [*limits, (_SILENCE, str(math.ceil(silence_s * 1000)))]


def set_session_sql(settings: Sequence[tuple[str, str]]) -> str:
    """Return the statement that sets `settings`, names and values of ours, for the whole session."""
    return "SELECT " + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings)


def set_local_sql(settings: Sequence[tuple[str, str]]) -> str:
    """Return what follows BEGIN to set `settings` for one transaction."""
    return "".join(f"; SET LOCAL {name} = {value}" for name, value in settings)
