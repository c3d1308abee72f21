"""Which of a node's queues are paused, as its last look has found: it neither claims from these nor looks at them.

A claim compares the pauses itself (`ledger.queue_pauses`), so nothing depends on this being current. It spares a node
the claims that would find nothing, and tells it when to look again. The pauses are read only if the look has counted
any.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.engine.node_state import NodeState
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.looking import Look
from fencepost.ledger.queue_pauses import queue_pauses

_NO_QUEUES = ("",)  # no run has this queue


class PausedQueues:
    """The queues from which a node may claim. Used by the loop that claims."""

    def __init__(self, node: NodeState, on_change: Callable[[], None]) -> None:
        """Call `on_change` when other queues are paused than before."""
        self._node = node
        self._on_change = on_change
        self._queues = tuple(node.settings.queues)
        self.open = self._queues

    @property
    def looked_at(self) -> tuple[str, ...]:
        """The queues that a look is about."""
        return self.open or _NO_QUEUES

    def read(self, connection: LedgerConnection, look: Look, now: float) -> None:
        """Use the result of a look. If other queues are paused than before, look again at once."""
        found = queue_pauses(self._node.ledger, connection) if look.pauses else []
        was_open = self.open
        self.open = tuple(queue for queue in self._queues if not any(each.concerns(queue) for each in found))
        if self.open != was_open:
            self._on_change()
            self._node.agenda.look_by(now)
        for each in found:
            if each.until is not None:
                self._node.agenda.look_by(max(self._node.clock.here(each.until), now))
