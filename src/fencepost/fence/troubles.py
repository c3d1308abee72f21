"""What a database's error means for a fenced transaction, whichever driver, SQLAlchemy or Django raised it."""

from __future__ import annotations

import sqlite3
from enum import Enum
from typing import Any


class Trouble(Enum):
    """Why a statement failed, as far as it matters here."""

    CONFLICT = "a serialization failure"
    DEADLOCK = "a deadlock"
    LOCKED = "somebody else has it locked"
    DUPLICATE = "somebody else made the row first"
    NO_TABLE = "there is no such table"
    NO_PROCEDURE = "there is no such procedure"
    NO_SAVEPOINT = "there is no such savepoint"
    SILENCED = "the server ended a transaction that stood idle"
    OTHER = "something else"


REPEATABLE = (Trouble.CONFLICT, Trouble.DEADLOCK)
"""The whole transaction was rolled back through no fault of its own, and may be tried again."""

_POSTGRES = {
    "40001": Trouble.CONFLICT,
    "40P01": Trouble.DEADLOCK,
    "55P03": Trouble.LOCKED,
    "23505": Trouble.DUPLICATE,
    "42P01": Trouble.NO_TABLE,
    "3F000": Trouble.NO_TABLE,
    "42883": Trouble.NO_PROCEDURE,
    "25P03": Trouble.SILENCED,
    "3B001": Trouble.NO_SAVEPOINT,
}
_MYSQL = {
    1020: Trouble.CONFLICT,  # MariaDB with innodb_snapshot_isolation
    1213: Trouble.DEADLOCK,
    1205: Trouble.LOCKED,
    1062: Trouble.DUPLICATE,
    1146: Trouble.NO_TABLE,
    1049: Trouble.NO_TABLE,
    1305: Trouble.NO_SAVEPOINT,
}
_SQLITE_WORDS = {"no such table": Trouble.NO_TABLE, "no such savepoint": Trouble.NO_SAVEPOINT}
_SQLITE_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def trouble_of(error: BaseException) -> Trouble:
    """Say what an error means."""
    cause = driver_error(error)
    if isinstance(cause, sqlite3.Error):
        return _of_sqlite(cause)
    if _is_of_mysql(cause):
        number = cause.args[0] if cause.args else None
        return _MYSQL.get(number, Trouble.OTHER) if isinstance(number, int) else Trouble.OTHER
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return _POSTGRES.get(state, Trouble.OTHER) if isinstance(state, str) else Trouble.OTHER


def driver_error(error: BaseException) -> BaseException:
    """Return what the driver raised, from within what SQLAlchemy or Django made of it."""
    family = type(error).__module__.partition(".")[0]
    within: Any = getattr(error, "orig", None) if family == "sqlalchemy" else None
    if family == "django":
        within = error.__cause__
    return within if isinstance(within, BaseException) else error


def _is_of_mysql(error: BaseException) -> bool:
    return any(kind.__module__.partition(".")[0] in ("pymysql", "MySQLdb", "mysql") for kind in type(error).__mro__)


def _of_sqlite(error: sqlite3.Error) -> Trouble:
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int) and code & 0xFF in _SQLITE_BUSY:
        return Trouble.LOCKED
    if isinstance(error, sqlite3.IntegrityError):
        return Trouble.DUPLICATE
    return next((trouble for words, trouble in _SQLITE_WORDS.items() if words in str(error)), Trouble.OTHER)
