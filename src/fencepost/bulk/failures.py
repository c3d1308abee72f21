"""What an error in a chunk means. This is decided before any item is set aside or retried.

================  =================================================================  =================================
verdict           errors                                                             what follows
================  =================================================================  =================================
``RAISE``         the run is lost or stopped, or the configuration is wrong          raised unchanged
``AGAIN``         a serialization failure, a deadlock, a conflict at the fence       retry the chunk
``UNKNOWN``       the connection broke, perhaps during COMMIT                        check whether it landed, then retry
``ASKED``         the user's code raised `Retry`                                     retry after its back-off
``ITEM``          the data: a constraint, a value, an exception of the user's code   split, to find the item
``LESS``          too much for one transaction                                       split; raised if it is one item
``WHOLE``         the database refuses the statement itself: no table, no rights     the attempt fails
================  =================================================================  =================================

An error that may be caused by the data is treated as such. With a skip limit of zero, the run then fails at once, and
the error names the item.
"""

from __future__ import annotations

from enum import Enum

from sqlalchemy.exc import TimeoutError as PoolTimeout

from fencepost.bulk.checkpoint import CheckpointMoved
from fencepost.core.verdicts import Cancel, Fail, Retry, Skip
from fencepost.errors import FencepostError, LedgerUnavailable, TransactionConflict, TransactionTooLong
from fencepost.sql.concerns import Concern, concern_of
from fencepost.sql.troubles import REPEATABLE, Trouble, driver_error, trouble_of


class ChunkVerdict(Enum):
    """What an error means for the chunk it happened in."""

    RAISE = "raise"
    AGAIN = "again"
    UNKNOWN = "unknown"
    ASKED = "asked"
    ITEM = "item"
    LESS = "less"
    WHOLE = "whole"


MENDED_BY_TIME = (ChunkVerdict.AGAIN, ChunkVerdict.UNKNOWN)


def verdict_of(error: Exception) -> ChunkVerdict:
    """Return what an error means for the chunk."""
    for kinds, verdict in _BY_KIND:
        if isinstance(error, kinds):
            return verdict
    trouble = trouble_of(error)
    return _BY_TROUBLE[trouble] if trouble in _BY_TROUBLE else _BY_CONCERN[concern_of(driver_error(error))]


_BY_KIND: tuple[tuple[tuple[type[Exception], ...], ChunkVerdict], ...] = (
    ((Retry,), ChunkVerdict.ASKED),
    ((Skip,), ChunkVerdict.ITEM),
    ((Cancel, Fail), ChunkVerdict.RAISE),
    ((TransactionTooLong,), ChunkVerdict.LESS),
    ((TransactionConflict, PoolTimeout), ChunkVerdict.AGAIN),
    ((CheckpointMoved, LedgerUnavailable), ChunkVerdict.UNKNOWN),
    ((FencepostError,), ChunkVerdict.RAISE),
)
_BY_TROUBLE = {
    **dict.fromkeys((*REPEATABLE, Trouble.LOCKED), ChunkVerdict.AGAIN),
    Trouble.SILENCED: ChunkVerdict.UNKNOWN,
}
_BY_CONCERN = {
    Concern.DATA: ChunkVerdict.ITEM,
    Concern.CONNECTION: ChunkVerdict.UNKNOWN,
    Concern.STATEMENT: ChunkVerdict.WHOLE,
    Concern.NOTHING: ChunkVerdict.ITEM,  # the user's own code
}
