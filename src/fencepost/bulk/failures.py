"""What an error in a chunk means: tell who it is about before anything is put aside or tried again.

================  =================================================================  =================================
verdict           errors                                                             what follows
================  =================================================================  =================================
``RAISE``         the run is lost or stopped, or nothing can work (configuration)    raised as it is
``AGAIN``         a serialization failure, a deadlock, a conflict at the fence       the chunk once more
``UNKNOWN``       the connection broke, perhaps during COMMIT                        look whether it landed, then again
``ASKED``         the user's code raised `Retry`                                     again, after its back-off
``ITEM``          the data: a constraint, a value, an exception of the user's code   split, to find the item
``LESS``          too much for one transaction                                       split; raised if it is one item
``WHOLE``         the database refuses the statement itself: no table, no rights     the attempt fails
================  =================================================================  =================================

An error that might be about the data is taken to be: with a skip limit of zero the run fails at once, and names it.
"""

from __future__ import annotations

import sqlite3
from enum import Enum

from sqlalchemy.exc import TimeoutError as PoolTimeout

from fencepost.bulk.checkpoint import CheckpointMoved
from fencepost.core.verdicts import Cancel, Fail, Retry, Skip
from fencepost.errors import FencepostError, LedgerUnavailable, TransactionConflict, TransactionTooLong
from fencepost.fence.troubles import REPEATABLE, Trouble, driver_error, trouble_of


class Verdict(Enum):
    """What an error means for the chunk it happened in."""

    RAISE = "raise"
    AGAIN = "again"
    UNKNOWN = "unknown"
    ASKED = "asked"
    ITEM = "item"
    LESS = "less"
    WHOLE = "whole"


MENDED_BY_TIME = (Verdict.AGAIN, Verdict.UNKNOWN)

# PostgreSQL, by the class of its SQLSTATE: data, constraints, a view's check, RAISE in a function, one row expected.
_DATA_STATES = ("22", "23", "44", "P0", "21")
_ROW_TOO_LARGE = "54000"
_SILENT_STATES = ("08", "53", "57", "58")  # no connection, no resources, somebody intervened, the system

# MySQL and MariaDB, whose driver calls most errors operational.
_DATA_NUMBERS = frozenset(
    (
        *(1048, 1062, 1169, 1216, 1217, 1451, 1452, 1557, 1586, 1761, 1762, 3819, 4025),  # constraints
        *(1264, 1265, 1292, 1364, 1365, 1366, 1367, 1406, 1411, 1416, 1425, 1426, 1690, 3140, 3141, 4038),  # values
        1644,  # SIGNAL, in a trigger
    )
)
_SILENT_NUMBERS = frozenset((0, 1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1927, 4031))
_OF_THE_CLIENT = range(2000, 2100)  # lost, refused, gone away

_SQLITE_SILENT = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL)
_SQLITE_DATA = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH)


def verdict_of(error: Exception) -> Verdict:
    """Say what an error means."""
    for kinds, verdict in _BY_KIND:
        if isinstance(error, kinds):
            return verdict
    trouble = trouble_of(error)
    return _BY_TROUBLE[trouble] if trouble in _BY_TROUBLE else _of_driver(driver_error(error))


_BY_KIND: tuple[tuple[tuple[type[Exception], ...], Verdict], ...] = (
    ((Retry,), Verdict.ASKED),
    ((Skip,), Verdict.ITEM),
    ((Cancel, Fail), Verdict.RAISE),
    ((TransactionTooLong,), Verdict.LESS),
    ((TransactionConflict, PoolTimeout), Verdict.AGAIN),
    ((CheckpointMoved, LedgerUnavailable), Verdict.UNKNOWN),
    ((FencepostError,), Verdict.RAISE),
)
_BY_TROUBLE = {
    **dict.fromkeys((*REPEATABLE, Trouble.LOCKED), Verdict.AGAIN),
    Trouble.SILENCED: Verdict.UNKNOWN,
}


def _of_driver(error: BaseException) -> Verdict:
    words = {kind.__name__ for kind in type(error).__mro__}
    if "DatabaseError" not in words and "InterfaceError" not in words:
        return Verdict.ITEM  # none of a database: the user's own code
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error)
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return _of_state(state)
    if words & {"IntegrityError", "DataError"}:
        return Verdict.ITEM
    number = error.args[0] if error.args else None
    if isinstance(number, int):
        return _of_number(number)
    # Without an answer of the server: the connection broke, or the driver cannot write a value of some item.
    return Verdict.UNKNOWN if words & {"OperationalError", "InterfaceError"} else Verdict.ITEM


def _of_state(state: str) -> Verdict:
    if state[:2] in _DATA_STATES or state == _ROW_TOO_LARGE:
        return Verdict.ITEM
    return Verdict.UNKNOWN if state[:2] in _SILENT_STATES else Verdict.WHOLE


def _of_number(number: int) -> Verdict:
    if number in _DATA_NUMBERS:
        return Verdict.ITEM
    return Verdict.UNKNOWN if number in _SILENT_NUMBERS or number in _OF_THE_CLIENT else Verdict.WHOLE


def _of_sqlite(error: sqlite3.Error) -> Verdict:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # of the module itself, which cannot write a value
        return Verdict.ITEM
    if code & 0xFF in _SQLITE_DATA or isinstance(error, sqlite3.DataError):
        return Verdict.ITEM
    return Verdict.UNKNOWN if code & 0xFF in _SQLITE_SILENT else Verdict.WHOLE
