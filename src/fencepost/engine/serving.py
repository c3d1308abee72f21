"""Which jobs and queues the living nodes serve. This decides which schedules are planned.

The nodes are read again when a look shows that some joined or ended, and once a minute. A change in between does no
harm: a schedule is set aside as unserved only in a transaction that has read the nodes, and the runs of a job that no
node serves any more stay queued until a node claims them or the misfire policy applies.

If no node has served a job with schedules or queued runs for ten minutes, there is one warning: an event, and a line in
the journal. The runs of the job are set aside (`parking`).
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.core.events import Event, What
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.parking import park, unpark
from fencepost.ledger.serving import NOTED_AT_ONCE, Served, UnservedJob, bring_back, note_missed, served

_PARK_EVERY_S = 300.0  # runs that nobody can take harm nothing for minutes
_SOON_S = 0.5  # there is more to do, but claims go first
_ONCE_MORE_S = 3.0  # a node that joins or leaves at this moment has committed by then
_EVERY_S = 60.0  # a node may join while another one sets its schedules aside; they stay aside no longer than this


class Serving:
    """The jobs and queues of the living nodes, as this node read them last."""

    def __init__(self, emit: Callable[[Event], None], on_queued: Callable[[], None] = lambda: None) -> None:
        self._emit = emit
        self._on_queued = on_queued
        self._park_at = float("-inf")
        self._served: Served | None = None
        self._read_at = float("-inf")
        self._reads_twice = False

    def is_served(self, job: str, queue: str) -> bool:
        """Whether a living node has this job and takes runs from this queue; True before the nodes were read."""
        return self._served is None or self._served.has(job, queue)

    def nodes_changed(self) -> None:
        """Record that nodes joined or ended."""
        self._reads_twice = True
        self.doubt()

    def doubt(self) -> None:
        """Read the nodes again in the next step."""
        self._read_at = float("-inf")

    @property
    def due_at(self) -> float:
        """When to read the nodes again."""
        return self._read_at + _EVERY_S

    def read(self, connection: LedgerConnection, now: float) -> int:
        """Read the nodes, and make schedules that are served again plannable. Return how many those are."""
        # First: a change from here on must cause another reading. When nodes joined or ended, there is a second
        # reading: another node that had not seen that yet may have been about to set schedules aside.
        self._read_at = now - _EVERY_S + _ONCE_MORE_S if self._reads_twice else now
        self._reads_twice = False
        try:
            return self._read(connection, now)
        except BaseException:
            self.doubt()
            raise

    def _read(self, connection: LedgerConnection, now: float) -> int:
        self._served = served(connection)
        count = bring_back(connection, self._served)
        self._queue(connection, now)
        noted = note_missed(connection)
        if len(noted) == NOTED_AT_ONCE:
            self._read_at = now - _EVERY_S + _SOON_S
        for missed in [*noted, *self._park(connection, now)]:
            self._emit(Event(What.JOB_WITHOUT_NODE, job=missed.job, reason=missed.reason))
        return count

    def _queue(self, connection: LedgerConnection, now: float) -> None:
        """Queue the runs that a node can take again, one batch at a time, because nothing is planned meanwhile."""
        if self._served is not None and unpark(connection, self._served):
            self._read_at = now - _EVERY_S + _SOON_S
            self._on_queued()

    def _park(self, connection: LedgerConnection, now: float) -> list[UnservedJob]:
        """Set aside runs that no node can take, one batch at a time.

        Rarely, because it reads all queued runs if there is a job that no node has.
        """
        if now < self._park_at:
            return []
        parked = park(connection)
        self._park_at = now + (_SOON_S if parked.runs else _PARK_EVERY_S)
        if parked.runs:
            self._read_at = now - _EVERY_S + _SOON_S
        return parked.missed
