"""The pruner: history is kept as long as the retention says, and removed in small batches.

Tick identity does not depend on what is kept: a schedule's `planned_through` only rises.
"""

from __future__ import annotations

from fencepost.engine.loop_step import LedgerStep
from fencepost.engine.node_state import NodeState
from fencepost.ledger.pruning import prune

_EVERY_S = 600.0
_BATCH = 500


class Pruner(LedgerStep):
    """The step that removes old history."""

    name = "pruner"

    def __init__(self, node: NodeState) -> None:
        super().__init__(node)
        self._random = node.runtime.random
        self._begins = True

    def step(self, now: float) -> float:
        """Remove one batch. The next step follows at once while there is more."""
        if self._begins or not self._may_prune:
            self._begins = False  # nodes often start together, and pruning is not urgent then
            return now + _EVERY_S * (0.1 + self._random())
        if prune(self._ledger, self._connection, self._node.settings.retention, limit=_BATCH):
            return now + 0.05
        self._connection.rest()
        return now + _EVERY_S * (0.5 + self._random())

    @property
    def _may_prune(self) -> bool:
        return self._node.may_lead and not self._node.same.is_held
