"""The loop that keeps the declarations of this program in the ledger, not only when it starts.

Another program may have been started that declares the same jobs differently, or the last node of a later deploy may
have left. `fencepost.ledger.declared` decides which declarations apply; this loop only decides when to check.
"""

from __future__ import annotations

from fencepost.engine.loop_step import LedgerStep
from fencepost.engine.node_state import NodeState
from fencepost.ledger.declared import Declarations, apply

_EVERY_S = 60.0  # two programs that started at the same moment may have overwritten each other
_SOON_S = 2.0  # another deploy has just left: apply ours before its schedules are due again


class Deploying(LedgerStep):
    """The step that applies declarations when nodes joined or ended."""

    name = "deploys"

    def __init__(self, node: NodeState, declared: Declarations) -> None:
        super().__init__(node)
        self._declared = declared
        self._is_due = False
        node.on_nodes_changed(self._nodes_changed)

    @classmethod
    def where_declared(cls, node: NodeState) -> Deploying | None:
        """Make the step if the node's program declares jobs and schedules."""
        return None if node.declared is None else cls(node, node.declared)

    def step(self, now: float) -> float:
        """Apply the declarations of this program, unless those of another one take precedence."""
        if self._node.member is None:
            return now + 1.0
        self._is_due = False
        try:
            applied = apply(self._ledger, self._declared, is_start=False, connection=self._connection)
        finally:
            self._connection.rest()
        if applied.synced.made or applied.synced.changed or applied.is_moved:
            self._node.hint()
        return now if self._is_due else now + (_SOON_S if applied.is_left else _EVERY_S)

    def _nodes_changed(self) -> None:
        self._is_due = True
        self._node.wake(self.name)
