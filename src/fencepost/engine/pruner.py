"""The pruner: history is kept as long as the retention says, and removed in small batches. Older figures are merged.

Tick identity does not depend on what is kept: a schedule's `planned_through` only rises.
"""

from __future__ import annotations

from fencepost.engine.loop_step import LedgerStep
from fencepost.engine.node_state import NodeState
from fencepost.ledger.figures import merge_figures
from fencepost.ledger.log_chunks import remove_orphans
from fencepost.ledger.pruning import prune

_EVERY_S = 600.0  # retention counts in days; spread at random, so that nodes take turns
_BATCH = 500  # rows per transaction: short locks, and little work for replicas at once
_SWEEP_EVERY_S = 86400.0  # for logs without a run, which are rare
_SWEEP_PAUSE_S = 1.0  # lets claims and finishes pass between two batches


class Pruner(LedgerStep):
    """The step that removes old history."""

    name = "pruner"

    def __init__(self, node: NodeState) -> None:
        super().__init__(node)
        self._random = node.runtime.random
        self._begins = True
        self._swept = 0  # the run up to which logs without a run were looked for
        self._sweep_at = float("-inf")
        self._merged_from_us = 0  # the hour from which figures may have to be merged

    def step(self, now: float) -> float:
        """Remove one batch. The next step follows at once while there is more."""
        if self._begins or not self._may_prune:
            self._begins = False  # nodes often start together, and pruning is not urgent then
            return now + _EVERY_S * (0.1 + self._random())
        if prune(self._ledger, self._connection, self._node.settings.retention, limit=_BATCH):
            return now + 0.05
        merged, self._merged_from_us = merge_figures(
            self._ledger, self._connection, from_us=self._merged_from_us, limit=_BATCH
        )
        if merged:
            return now + 0.05
        if now >= self._sweep_at and self._sweep(now):
            return now + _SWEEP_PAUSE_S
        self._connection.rest()
        return now + _EVERY_S * (0.5 + self._random())

    def _sweep(self, now: float) -> bool:
        """Look for logs without a run, a part of them at a time; return whether there are more to look at."""
        self._swept = remove_orphans(self._ledger, self._connection, after=self._swept)
        if not self._swept:
            self._sweep_at = now + _SWEEP_EVERY_S
        return bool(self._swept)

    @property
    def _may_prune(self) -> bool:
        return self._node.may_lead and not self._node.same.is_held
