"""Whether the user's connection has no open transaction, so that it commits each statement immediately."""

from __future__ import annotations

from typing import Any

from fencepost.fence.target import connection_of, family_of

IN_TRANSACTION = 1  # a bit in MySQL's server status


def commits_at_once(given: Any) -> bool:
    """Whether a statement on this connection would be a transaction of its own."""
    match family_of(given):
        case "django":
            return bool(given.get_autocommit() and not given.in_atomic_block)
        case "sqlalchemy":
            return commits_at_once(_begun(connection_of(given)).connection.driver_connection)
        case "psycopg":
            return bool(given.autocommit and given.info.transaction_status.name == "IDLE")
        case "pymysql":
            return bool(given.get_autocommit() and not given.server_status & IN_TRANSACTION)
        case "sqlite3":
            is_auto = given.isolation_level is None or getattr(given, "autocommit", -1) is True
            return is_auto and not given.in_transaction
    return getattr(given, "autocommit", False) is True  # another driver, used through SQLAlchemy


def _begun(connection: Any) -> Any:
    if not connection.in_transaction():
        connection.begin()
    return connection
