"""What an error in a chunk means: tell who it is about before anything is put aside or tried again.

================  =================================================================  =================================
verdict           errors                                                             what follows
================  =================================================================  =================================
``RAISE``         the run is lost or stopped, or nothing can work (configuration)    raised as it is
``AGAIN``         a serialization failure, a deadlock, a conflict at the fence       the chunk once more
``UNKNOWN``       the connection broke, perhaps during COMMIT                        look whether it landed, then again
``ASKED``         the user's code raised `Retry`                                     again, after its back-off
``ITEM``          the data: a constraint, a value, an exception of the user's code   split, to find the item
``WHOLE``         the database refuses the statement itself: no table, no rights     the attempt fails
================  =================================================================  =================================
"""

from __future__ import annotations

from enum import Enum

from fencepost.bulk.checkpoint import CheckpointMoved
from fencepost.core.verdicts import Cancel, Fail, Retry, Skip
from fencepost.errors import FencepostError, LedgerUnavailable, TransactionConflict
from fencepost.fence.troubles import REPEATABLE, Trouble, driver_error, trouble_of

_DATA_STATES = ("22", "23", "44", "P0", "21")


class Verdict(Enum):
    """What an error means for the chunk it happened in."""

    RAISE = "raise"
    AGAIN = "again"
    UNKNOWN = "unknown"
    ASKED = "asked"
    ITEM = "item"
    WHOLE = "whole"


def verdict_of(error: Exception) -> Verdict:
    """Say what an error means."""
    if isinstance(error, Retry):
        return Verdict.ASKED
    if isinstance(error, Skip):
        return Verdict.ITEM
    if isinstance(error, TransactionConflict) or trouble_of(error) in (*REPEATABLE, Trouble.LOCKED):
        return Verdict.AGAIN
    if isinstance(error, CheckpointMoved | LedgerUnavailable):
        return Verdict.UNKNOWN
    if isinstance(error, FencepostError | Cancel | Fail):
        return Verdict.RAISE
    return _of_driver(driver_error(error))


def _of_driver(error: BaseException) -> Verdict:
    words = {kind.__name__ for kind in type(error).__mro__}
    if "DatabaseError" not in words and "InterfaceError" not in words:
        return Verdict.ITEM  # none of a database: the user's own code
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return Verdict.ITEM if state[:2] in _DATA_STATES else _connection_or_whole(words)
    if words & {"IntegrityError", "DataError"}:
        return Verdict.ITEM
    return _connection_or_whole(words)


def _connection_or_whole(words: set[str]) -> Verdict:
    return Verdict.UNKNOWN if words & {"OperationalError", "InterfaceError"} else Verdict.WHOLE
