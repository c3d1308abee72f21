"""Withdrawing a job that the workers of this node do not have, so that other nodes do not rely on this node for it.

This happens when the code was replaced while the node runs: workers that are started later load the new code.
"""

from __future__ import annotations

from contextlib import suppress

from fencepost.core.events import Event, What
from fencepost.engine.node_state import NodeState
from fencepost.errors import FencepostError
from fencepost.ledger.nodes import serve

_ASK_AGAIN_S = 1.0  # while the ledger does not answer
_REASON = (
    "the code that its workers load now does not have this job: its runs are handed back, and this node takes no more "
    "of them. Restart the node with the code of one deploy"
)


class Withdrawing:
    """Removes jobs from this node's row. Used by the exchange."""

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._lock = node.runtime.lock()  # otherwise, of two jobs withdrawn at once, one might stay in the row

    def withdraw(self, job: str) -> None:
        """Take no more runs of this job, and record that in the ledger."""
        self._node.withdrawn.add(job)
        self._node.emit(Event(What.RUNNER_WARNING, job=job, node=self._node.node_id, reason=_REASON))
        self._node.in_background("withdrawing", self._write)

    def _write(self) -> None:
        """Write the row, with retries: while it has the job, other nodes rely on this node for it."""
        node = self._node
        while not node.stopped.is_set():
            with suppress(FencepostError), self._lock, node.connection() as connection:
                if (node_id := node.node_id) is not None:
                    serve(node.ledger, node_id, node.served_jobs, connection=connection)
                    return
            node.stopped.wait(_ASK_AGAIN_S)
