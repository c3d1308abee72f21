"""Classifies errors of databases, raised by any driver, SQLAlchemy or Django.

There is one classification. A caller compares with one `Trouble`, or with one of the groups below.
"""

from __future__ import annotations

import sqlite3
from enum import Enum
from typing import Any


class Trouble(Enum):
    """Why a call to a database failed."""

    BROKEN = "the connection is gone"
    LATE = "no answer in time"
    LOCKED = "another transaction holds the lock"
    SILENCED = "the server ended a transaction that stood idle"
    CONFLICT = "a serialization failure"
    DEADLOCK = "a deadlock"
    DUPLICATE = "a constraint refuses the row"
    NO_TABLE = "there is no such table"
    NO_COLUMN = "there is no such column"
    NO_SCHEMA = "there is no such schema"
    NO_DATABASE = "there is no such database"
    NO_PROCEDURE = "there is no such procedure"
    NO_SAVEPOINT = "there is no such savepoint"
    FORBIDDEN = "a right is missing"
    NO_ENTRY = "the server does not accept the login"
    REFUSED = "the database refuses the statement, and will again"
    OTHER = "something else"


REPEATABLE = frozenset((Trouble.CONFLICT, Trouble.DEADLOCK))
"""The whole transaction was rolled back because of others, and can be retried."""

SLOW = frozenset((Trouble.LATE, Trouble.LOCKED, Trouble.SILENCED))
"""The call timed out, on the client or on the server."""

LACKS_TABLES = frozenset((Trouble.NO_TABLE, Trouble.NO_COLUMN, Trouble.NO_SCHEMA))
"""Tables are missing, or have another version."""

NO_TABLES = frozenset((Trouble.NO_TABLE, Trouble.NO_SCHEMA, Trouble.NO_DATABASE))
"""The table, or its schema or database, does not exist."""

REFUSALS = LACKS_TABLES | {
    Trouble.DUPLICATE,
    Trouble.NO_DATABASE,
    Trouble.NO_PROCEDURE,
    Trouble.NO_SAVEPOINT,
    Trouble.FORBIDDEN,
    Trouble.NO_ENTRY,
    Trouble.REFUSED,
}
"""The database refused the statement. Nothing was changed, and a retry would fail again."""


class CallTimedOut(Exception):
    """The deadline of a call has passed. The connection is in an unknown state and must be closed."""


class FileReplacedError(sqlite3.OperationalError):
    """A SQLite file was deleted or replaced while a connection was open: others would not see what it writes."""


_POSTGRES = {
    "40001": Trouble.CONFLICT,
    "40P01": Trouble.DEADLOCK,
    "55P03": Trouble.LOCKED,
    "57014": Trouble.LATE,  # statement_timeout
    "25P03": Trouble.SILENCED,
    "23505": Trouble.DUPLICATE,
    "42P01": Trouble.NO_TABLE,
    "42703": Trouble.NO_COLUMN,
    "3F000": Trouble.NO_SCHEMA,
    "3D000": Trouble.NO_DATABASE,
    "42883": Trouble.NO_PROCEDURE,
    "3B001": Trouble.NO_SAVEPOINT,
    "42501": Trouble.FORBIDDEN,
    "28000": Trouble.NO_ENTRY,
    "28P01": Trouble.NO_ENTRY,
    "25006": Trouble.REFUSED,  # a read-only transaction
}
# In psycopg, errors while connecting have no SQLSTATE.
_POSTGRES_NO_ENTRY = (
    "authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "no password supplied",
    "permission denied",
    "is not permitted to log in",
    "certificate verify failed",
    "server does not support SSL",
)
# Lost, refused or killed connections, a server that is full, shutting down or not ready (1047, Galera), and all error
# numbers of the client itself.
MYSQL_CONNECTION = frozenset(
    (
        *(0, 1040, 1047, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1203),
        1836,  # the server is read-only: it was the primary before a failover
        *(1927, 3169, 4031),  # killed, session killed, closed for being idle
        *range(2000, 2100),
    )
)
_MYSQL = {
    1020: Trouble.CONFLICT,  # MariaDB with innodb_snapshot_isolation
    1213: Trouble.DEADLOCK,
    1205: Trouble.LOCKED,
    1969: Trouble.LATE,  # MariaDB's max_statement_time
    1062: Trouble.DUPLICATE,
    1146: Trouble.NO_TABLE,
    1054: Trouble.NO_COLUMN,
    1049: Trouble.NO_DATABASE,
    1305: Trouble.NO_SAVEPOINT,
    **dict.fromkeys((1142, 1143, 1227, 1370), Trouble.FORBIDDEN),  # a table, a column, a privilege, a routine
    **dict.fromkeys((1044, 1045, 1130, 1698, 1862), Trouble.NO_ENTRY),
}
_MYSQL_OPTION_PREVENTS = 1290  # this number has several meanings
_SQLITE = {
    sqlite3.SQLITE_BUSY: Trouble.LOCKED,
    sqlite3.SQLITE_LOCKED: Trouble.LOCKED,
    **dict.fromkeys(
        (
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_PERM,
            sqlite3.SQLITE_NOTADB,
            sqlite3.SQLITE_CORRUPT,
        ),
        Trouble.REFUSED,
    ),
}
_SQLITE_WORDS = {
    "no such table": Trouble.NO_TABLE,
    "no such column": Trouble.NO_COLUMN,
    "has no column named": Trouble.NO_COLUMN,
    "no such savepoint": Trouble.NO_SAVEPOINT,
}
_MYSQL_DRIVERS = ("pymysql", "MySQLdb", "mysql")


def trouble_of(error: BaseException | None) -> Trouble:
    """Return what an error means. An error that is not from a database is `OTHER`."""
    if isinstance(error, CallTimedOut):
        return Trouble.LATE
    if error is None:
        return Trouble.OTHER
    cause = driver_error(error)
    if isinstance(cause, sqlite3.Error):
        return _of_sqlite(cause)
    if _is_of_mysql(cause):
        return _of_mysql(cause)
    return _of_postgres(cause)


def driver_error(error: BaseException) -> BaseException:
    """Return the driver's error that is wrapped by an error of SQLAlchemy or Django."""
    family = type(error).__module__.partition(".")[0]
    within: Any = getattr(error, "orig", None) if family == "sqlalchemy" else None
    if family == "django":
        within = error.__cause__
    return within if isinstance(within, BaseException) else error


def first_line(error: BaseException) -> str:
    """Return the first line of a driver's message. The rest may contain the statement."""
    lines = str(error.args[-1] if error.args else error).strip().splitlines()
    return lines[0][:300] if lines and lines[0] else type(error).__name__


def mysql_code(error: BaseException | None) -> int:
    """Return the error number of MySQL's drivers, or -1 if there is none."""
    arguments: tuple[Any, ...] = getattr(error, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else -1


def is_mysql_connection(error: BaseException) -> bool:
    """Whether an error of MySQL's drivers concerns the connection, or a server that is read-only after a failover.

    The next connection may reach a server that accepts writes.
    """
    code = mysql_code(error)
    is_read_only = code == _MYSQL_OPTION_PREVENTS and "read-only" in str(error).replace("_", "-").lower()
    return is_read_only or code in MYSQL_CONNECTION


def sqlite_code(error: BaseException | None) -> int:
    """Return the primary result code of an error of sqlite3, or 0 if there is none."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _is_of_mysql(error: BaseException) -> bool:
    return any(kind.__module__.partition(".")[0] in _MYSQL_DRIVERS for kind in type(error).__mro__)


def _of_postgres(error: BaseException) -> Trouble:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if isinstance(state, str) and state in _POSTGRES:
        return _POSTGRES[state]
    kinds = _kinds(error)
    if "ConnectionTimeout" in kinds:
        return Trouble.LATE
    if kinds & {"OperationalError", "InterfaceError"}:
        return Trouble.NO_ENTRY if any(words in str(error) for words in _POSTGRES_NO_ENTRY) else Trouble.BROKEN
    return Trouble.REFUSED if _is_refusal(kinds) else Trouble.OTHER


def _of_mysql(error: BaseException) -> Trouble:
    trouble = Trouble.BROKEN if is_mysql_connection(error) else _MYSQL.get(mysql_code(error))
    if trouble is Trouble.BROKEN and _has_timed_out(error):
        return Trouble.LATE
    if trouble is not None:
        return trouble
    return Trouble.REFUSED if _is_refusal(_kinds(error)) else Trouble.OTHER


def _has_timed_out(error: BaseException) -> bool:
    """Whether PyMySQL timed out. The context alone is not enough: it may be an error that the caller is handling."""
    return isinstance(error.__context__, TimeoutError) and "timed out" in str(error)


def _of_sqlite(error: sqlite3.Error) -> Trouble:
    if isinstance(error, FileReplacedError):
        return Trouble.BROKEN
    if (code := sqlite_code(error)) in _SQLITE:
        return _SQLITE[code]
    if isinstance(error, sqlite3.IntegrityError):
        return Trouble.DUPLICATE
    return next((trouble for words, trouble in _SQLITE_WORDS.items() if words in str(error)), Trouble.OTHER)


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _is_refusal(kinds: set[str]) -> bool:
    return bool(kinds & {"ProgrammingError", "IntegrityError", "DataError"})
