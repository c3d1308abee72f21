"""URL, clock and session settings of MySQL and MariaDB, without a driver."""

from __future__ import annotations

import math
from typing import Any

from fencepost.core.urls import StoreUrl

NOW_US = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
"""The server's time in µs at the start of the statement. In UTC, because local times can be ambiguous."""

URL_OPTIONS = frozenset(("ssl_ca", "ssl_cert", "ssl_key", "unix_socket"))
"""Options of a URL that are passed to PyMySQL unchanged."""

_DEFAULT_PORT = 3306
_LEAST_LIMIT_S = 0.001  # PyMySQL treats zero as no limit
_IDLE_S = 600  # a connection left by a dead client is closed after ten minutes; live ones are used more often
_LEAST_IDLE_S = 10  # MySQL closes connections between calls too, so it must not be too short


def product(url: StoreUrl) -> str:
    """Return the server's product and host, for messages."""
    kind = "MariaDB" if url.scheme.startswith("mariadb") else "MySQL"
    return f"{kind} at {url.hosts[0][0] if url.hosts else 'localhost'}"


def connect_options(url: StoreUrl, timeout_s: float) -> dict[str, Any]:
    """Return the keyword arguments for PyMySQL. Connecting and each read and write time out after `timeout_s`."""
    host, port = url.hosts[0] if url.hosts else ("localhost", None)
    passed: dict[str, Any] = {name: value for name, value in url.options.items() if name in URL_OPTIONS}
    if "ssl_ca" in passed:
        passed |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
    limit_s = max(timeout_s, _LEAST_LIMIT_S)
    return {
        "host": host,
        "port": port or _DEFAULT_PORT,
        "user": url.user,
        "password": url.password or "",
        "database": url.path.strip("/"),
        "charset": "utf8mb4",
        "collation": "utf8mb4_bin",
        "autocommit": True,
        "connect_timeout": limit_s,
        "read_timeout": limit_s,
        "write_timeout": limit_s,
        **passed,
    }


def session_sql(*, is_mariadb: bool, timeout_s: float, silence_s: float) -> str:
    """Return the SQL that sets up every session. The server disconnects a silent client and rolls back its transaction.

    On MariaDB this applies to clients inside a transaction, also if it has only taken locks so far. MySQL can only
    disconnect all silent clients, inside a transaction or not; a connection that it closes between two calls is
    opened again.
    """
    settings = {
        "innodb_lock_wait_timeout": max(1, math.floor(timeout_s)),
        "wait_timeout": _IDLE_S if is_mariadb else max(math.ceil(silence_s), _LEAST_IDLE_S),
        "sql_mode": "'STRICT_ALL_TABLES'",
        **({"idle_transaction_timeout": max(math.ceil(silence_s), 1)} if is_mariadb else {}),
    }
    spelled = ", ".join(f"{name} = {value}" for name, value in settings.items())
    return f"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION {spelled}"
