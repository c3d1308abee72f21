"""When pauses end by themselves: the planner wakes for the next end, and resumes what was paused until then.

Pauses of queues end in every claim by themselves. Here, the end is noted in the journal and the row removed.

The ends are read once a minute, and within a second or two after a look has shown a new entry in the journal: every
pause is noted there. If no node lives at an end, the first one that joins resumes the schedule, with the same result.
"""

from __future__ import annotations

from fencepost.engine.ledger_clock import LedgerClock
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.queue_pauses import end_queue_pauses
from fencepost.ledger.schedules import end_pauses

_EVERY_S = 60.0  # for entries of the journal that commit late, and for ends that other nodes changed
_SHORTEST_S = 1.0  # a journal that grows all the time must not cost more


class PauseEnds:
    """The next end of a pause, as this node read it last. Used by the planner; `noted` may be called by any thread."""

    def __init__(self, database: Database, clock: LedgerClock) -> None:
        self._database = database
        self._clock = clock
        self._mark: int | None = None
        self._read_at = float("-inf")
        self._next_us: int | None = None
        self._must_read = True

    def noted(self, journal_mark: int) -> None:
        """Use what a look has found: the newest entry of the journal."""
        if journal_mark != self._mark:
            self._mark = journal_mark
            self._must_read = True

    @property
    def due_at(self) -> float:
        """When to call `end` again."""
        every_s = _SHORTEST_S if self._must_read else _EVERY_S
        next_at = float("inf") if self._next_us is None else self._clock.here(self._next_us)
        return min(self._read_at + every_s, max(next_at, self._read_at))

    def end(self, connection: LedgerConnection, now: float) -> bool:
        """Resume what was paused until now; return whether there was anything."""
        self._must_read, self._read_at = False, now  # first: an entry that is noted meanwhile counts
        try:
            ended = end_pauses(self._database, is_believed=self._clock.observe, connection=connection)
            of_queues_us = end_queue_pauses(self._database, is_believed=self._clock.observe, connection=connection)
        except BaseException:
            self._must_read = True
            raise
        self._next_us = min((each for each in (ended.next_end_us, of_queues_us) if each is not None), default=None)
        return ended.resumed > 0
