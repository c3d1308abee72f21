"""What a user's failed statement is about: the data, the connection, or the statement itself.

An error that may be about the data counts as such. `fencepost.sql.troubles` tells why a call failed; this tells what
has to be corrected.
"""

from __future__ import annotations

import sqlite3
from enum import Enum

from fencepost.sql.troubles import is_mysql_connection


class Concern(Enum):
    """What an error is about."""

    DATA = "a constraint or a value"
    CONNECTION = "the connection, or the server's state"
    STATEMENT = "the statement: no table, no rights, a mistake in it"
    NOTHING = "no error of a database"


# PostgreSQL, by the class of its SQLSTATE: data, constraints, a view's check, RAISE in a function, one row expected.
_DATA_STATES = ("22", "23", "44", "P0", "21")
_ROW_TOO_LARGE = "54000"
_CONNECTION_STATES = ("08", "53", "57", "58")  # no connection, no resources, operator intervention, system error

# MySQL and MariaDB, whose driver calls most errors operational.
_DATA_NUMBERS = frozenset(
    (
        *(1048, 1062, 1169, 1216, 1217, 1451, 1452, 1557, 1586, 1761, 1762, 3819, 4025),  # constraints
        *(1264, 1265, 1292, 1364, 1365, 1366, 1367, 1406, 1411, 1416, 1425, 1426, 1690, 3140, 3141, 4038),  # values
        1644,  # SIGNAL, in a trigger
    )
)
_LOCK_WAIT = 1205  # ER_LOCK_WAIT_TIMEOUT: another transaction has the row, and the statement is right

_SQLITE_CONNECTION = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL)
_SQLITE_DATA = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH)


def concern_of(error: BaseException) -> Concern:
    """Return what a driver's error is about; see `fencepost.sql.troubles.driver_error`."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "DatabaseError" not in kinds and "InterfaceError" not in kinds:
        return Concern.NOTHING
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error)
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return _of_state(state)
    if kinds & {"IntegrityError", "DataError"}:
        return Concern.DATA
    number = error.args[0] if error.args else None
    if isinstance(number, int):
        return _of_number(number, error)
    # Without a reply from the server: the connection broke, or the driver cannot convert a value of an item.
    return Concern.CONNECTION if kinds & {"OperationalError", "InterfaceError"} else Concern.DATA


def _of_state(state: str) -> Concern:
    if state[:2] in _DATA_STATES or state == _ROW_TOO_LARGE:
        return Concern.DATA
    return Concern.CONNECTION if state[:2] in _CONNECTION_STATES else Concern.STATEMENT


def _of_number(number: int, error: BaseException) -> Concern:
    if number in _DATA_NUMBERS:
        return Concern.DATA
    return Concern.CONNECTION if number == _LOCK_WAIT or is_mysql_connection(error) else Concern.STATEMENT


def _of_sqlite(error: sqlite3.Error) -> Concern:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # raised by the sqlite3 module, which cannot convert a value
        return Concern.DATA
    if code & 0xFF in _SQLITE_DATA or isinstance(error, sqlite3.DataError):
        return Concern.DATA
    return Concern.CONNECTION if code & 0xFF in _SQLITE_CONNECTION else Concern.STATEMENT
