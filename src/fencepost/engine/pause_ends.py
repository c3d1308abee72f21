"""When pauses end by themselves: the planner wakes for the next end, and resumes what was paused until then.

Pauses of queues end in every claim by themselves. Here, the end is noted in the journal and the row removed.

To read the ends, the database goes through all schedules. So they are read when the next one has come, and within a
second or two after a person has paused something: every pause is noted in the journal, whose newest entry each look
shows. Beyond that rarely, for what was noted late: the longer it takes, the more rarely. If no node lives at an end,
the first one that joins resumes the schedule, with the same result.
"""

from __future__ import annotations

from functools import partial

from fencepost.core.noted import Noted
from fencepost.core.runtime import Runtime
from fencepost.engine.ledger_clock import LedgerClock
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.journal import is_noted_since
from fencepost.ledger.queue_pauses import end_queue_pauses
from fencepost.ledger.schedules import end_pauses

_EVERY_S = 60.0  # for entries of the journal that commit late, and for ends that other nodes changed
_SHARE = 1000  # reading the ends takes at most a thousandth of the time, however many schedules there are
_SHORTEST_S = 1.0  # a journal that grows all the time must not cost more
_PAUSES = (Noted.SCHEDULE_PAUSED, Noted.QUEUE_PAUSED, Noted.ALL_PAUSED)
_NEVER = float("inf")


class PauseEnds:
    """The next end of a pause, as this node read it last. Used by the planner; `noted` may be called by any thread."""

    def __init__(self, database: Database, clock: LedgerClock, runtime: Runtime) -> None:
        self._database = database
        self._clock = clock
        self._runtime = runtime
        self._mark: int | None = None  # the newest entry of the journal, as a look has shown it
        self._seen: int | None = None  # the newest that was looked at
        self._looked_at = -_NEVER
        self._read_all_at = -_NEVER
        self._next_us: int | None = None

    def noted(self, journal_mark: int) -> None:
        """Use what a look has found: the newest entry of the journal."""
        self._mark = journal_mark

    @property
    def due_at(self) -> float:
        """When to call `end` again."""
        soonest_at = self._looked_at + _SHORTEST_S
        noted_at = soonest_at if self._mark != self._seen else _NEVER
        return min(self._read_all_at, noted_at, max(self._next_at, soonest_at))

    @property
    def _next_at(self) -> float:
        return _NEVER if self._next_us is None else self._clock.here(self._next_us)

    def end(self, connection: LedgerConnection, now: float) -> bool:
        """Resume what was paused until now; return whether there was anything."""
        mark, self._looked_at = self._mark, now  # first: an entry that is noted meanwhile counts
        resumed = False
        if (
            self._seen is None
            or now >= min(self._read_all_at, self._next_at)
            or is_noted_since(self._database, self._seen, _PAUSES, connection=connection)
        ):
            resumed = self._read(connection, now)
        self._seen = mark
        return resumed

    def _read(self, connection: LedgerConnection, now: float) -> bool:
        began_at = self._runtime.monotonic()
        is_believed = partial(self._clock.observe, since=began_at)
        ended = end_pauses(self._database, is_believed=is_believed, connection=connection)
        of_queues_us = end_queue_pauses(self._database, is_believed=is_believed, connection=connection)
        self._next_us = min((each for each in (ended.next_end_us, of_queues_us) if each is not None), default=None)
        self._read_all_at = now + max(_EVERY_S, _SHARE * (self._runtime.monotonic() - began_at))
        return ended.resumed > 0
