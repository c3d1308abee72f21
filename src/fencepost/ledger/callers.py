"""Enqueuing in a transaction of the caller, on the caller's connection.

Accepts connections of psycopg, PyMySQL and sqlite3, connections and sessions of SQLAlchemy on one of these, and those
of Django. The caller keeps control of the transaction: this module neither commits nor rolls back. Errors of the driver
are passed on unchanged, since the caller's code decides how to handle them. The exception are errors which show that it
is another database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.fence.autocommit import commits_at_once
from fencepost.fence.inherited import refuse_if_inherited
from fencepost.fence.target import is_django
from fencepost.ledger.dialects import Cursor, Dialect
from fencepost.sql.cursors import plain_cursor
from fencepost.sql.troubles import LACKS_TABLES, first_line, trouble_of

_DRIVERS = {"psycopg": "postgresql", "pymysql": "mysql", "sqlite3": "sqlite"}


@contextmanager
def cursor_of(tx: Any, dialect: Dialect) -> Iterator[Cursor]:
    """Yield a cursor, with rows as tuples, on the caller's connection `tx`."""
    raw = _raw(tx)
    driver = _driver(raw)
    if _DRIVERS.get(driver) != dialect.name or _is_async(raw) or not hasattr(raw, "commit"):
        raise ConfigurationError(
            f"tx= is a {type(tx).__module__}.{type(tx).__qualname__}; for a ledger in {dialect.product} it must be a "
            f"connection to the same database: {_wanted(dialect.name)}"
        )
    refuse_if_inherited(raw)
    if commits_at_once(raw):
        raise ConfigurationError(
            "tx= is in autocommit mode and has no transaction open, so nothing could be rolled back; begin one first"
        )
    cursor = plain_cursor(raw, driver)
    try:
        yield cursor
    except dialect.errors as error:
        if trouble_of(error) in LACKS_TABLES:
            raise ConfigurationError(
                f"tx= is a connection to a database without the tables of the ledger ({first_line(error)}); it must be "
                f"one to the ledger's own: {dialect.product}"
            ) from error
        raise
    finally:
        cursor.close()


def _raw(tx: Any) -> Any:
    """Return the driver's connection. A connection of SQLAlchemy begins its transaction first."""
    if is_django(tx):
        tx.ensure_connection()
        return tx.connection
    if _driver(tx) != "sqlalchemy" or _is_async(tx):
        return tx
    connection = tx.connection() if callable(getattr(tx, "connection", None)) else tx  # a session has a connection
    if not hasattr(connection, "exec_driver_sql"):
        raise ConfigurationError("tx= must be a connection or session of SQLAlchemy, not an engine")
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


def _driver(connection: Any) -> str:
    names = [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]
    return next((name for name in names if name in _DRIVERS or name == "sqlalchemy"), names[0])


def _is_async(connection: Any) -> bool:
    return hasattr(connection, "__aenter__")


def _wanted(kind: str) -> str:
    driver = next(name for name, served in _DRIVERS.items() if served == kind)
    return (
        f"one of {driver} (not an async one), or a connection or session of SQLAlchemy, or one of Django's, on {driver}"
    )
