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
    """Say what an error means."""
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
