"""Withdrawing a job: the workers of this node turn out not to have it, so other nodes must not count on it for that.

It happens when the code was replaced under a running node: its workers, started later, load the new code.
"""

from __future__ import annotations

from contextlib import suppress

from fencepost.core.events import Event, What
from fencepost.engine.node_state import NodeState
from fencepost.errors import FencepostError
from fencepost.ledger.nodes import serve

_ASK_AGAIN_S = 1.0
_REASON = (
    "the code that its workers load now does not have this job: its runs are handed back, and this node takes no more "
    "of them. Start the node anew, with the code of one deploy"
)


class Withdrawing:
    """Takes jobs out of this node's row. Used by the exchange."""

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._lock = node.runtime.lock()  # or of two jobs withdrawn at once, the row might be left with one

    def withdraw(self, job: str) -> None:
        """Take no more runs of this job, and say so in the ledger."""
        self._node.withdrawn.add(job)
        self._node.emit(Event(What.RUNNER_WARNING, job=job, node=self._node.node_id, reason=_REASON))
        self._node.beside("withdrawing", self._write)

    def _write(self) -> None:
        """Write it, however often it takes: while the node's row has the job, other nodes rely on it."""
        node = self._node
        while not node.stopped.is_set():
            with suppress(FencepostError), self._lock, node.connection() as connection:
                if (node_id := node.node_id) is not None:
                    serve(node.ledger, node_id, node.served_jobs, connection=connection)
                    return
            node.stopped.wait(_ASK_AGAIN_S)
