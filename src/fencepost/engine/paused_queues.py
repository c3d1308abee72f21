"""Which of a node's queues are paused, as its last look has found: it neither claims from these nor looks at them.

A claim compares the pauses itself (`ledger.queue_pauses`), so nothing depends on this being current. It spares a node
the claims that would find nothing, and tells it when to look again. The pauses are read only if the look has counted
any.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.looking import Look
from fencepost.ledger.queue_pauses import queue_pauses

NO_QUEUES = ("",)
"""What is looked for while all queues are paused: no run has this queue."""


class PausedQueues:
    """The queues from which a node may claim. Used by the loop that claims."""

    def __init__(self, database: Database, queues: Sequence[str]) -> None:
        self._database = database
        self._queues = tuple(queues)
        self.open = self._queues
        self.next_end_us: int | None = None

    def read(self, connection: LedgerConnection, look: Look) -> bool:
        """Use the result of a look; return whether other queues are paused than before."""
        found = queue_pauses(self._database, connection) if look.pauses else []
        was_open = self.open
        self.open = tuple(queue for queue in self._queues if not any(each.concerns(queue) for each in found))
        self.next_end_us = min((each.until for each in found if each.until is not None), default=None)
        return self.open != was_open
