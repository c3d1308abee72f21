"""What a node knows of who serves what: it decides which schedules are planned.

The nodes of the ledger are read again when a look says that some came or went, and now and then. What changes in
between does no harm: nothing is set aside as unserved before the nodes were read in the transaction that does it, and
what nobody serves any more is queued, to be claimed or to misfire when somebody does.

A job with schedules, or queued runs, that nobody has served for ten minutes is warned of, once: an event, and a line in
the journal; and its runs are set aside (`parking`).
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.core.events import Event, What
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.parking import park, unpark
from fencepost.ledger.serving import NOTED_AT_ONCE, Served, UnservedJob, bring_back, note_missed, served

_PARK_EVERY_S = 300.0
_SOON_S = 0.5
_ONCE_MORE_S = 3.0
_EVERY_S = 60.0  # a node may join while another sets its schedules aside: so nothing stays aside for longer than this


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
        """Note that nodes came or went."""
        self._reads_twice = True
        self.doubt()

    def doubt(self) -> None:
        """Have the nodes read again."""
        self._read_at = float("-inf")

    @property
    def due_at(self) -> float:
        """When to read the nodes again."""
        return self._read_at + _EVERY_S

    def read(self, connection: LedgerConnection, now: float) -> int:
        """Read the nodes, and let schedules that are served again be planned; return how many those are."""
        # First: what changes from here on is another reason to read. And when nodes came or went, there is a second
        # reading: somebody who had not seen that yet may have been about to set schedules aside.
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
        """Queue what can be taken again, a batch at a time: meanwhile nothing is planned."""
        if self._served is not None and unpark(connection, self._served):
            self._read_at = now - _EVERY_S + _SOON_S
            self._on_queued()

    def _park(self, connection: LedgerConnection, now: float) -> list[UnservedJob]:
        """Set aside runs that nobody can take, a batch at a time.

        Seldom, for it reads all that is queued if there is a job that nobody has.
        """
        if now < self._park_at:
            return []
        parked = park(connection)
        self._park_at = now + (_SOON_S if parked.runs else _PARK_EVERY_S)
        if parked.runs:
            self._read_at = now - _EVERY_S + _SOON_S
        return parked.missed
