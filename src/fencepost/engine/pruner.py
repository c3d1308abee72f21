"""The pruner: history is kept as long as the retention says, and removed in small batches.

Tick identity does not depend on what is kept: a schedule's `planned_through` only rises.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.core.runtime import Runtime
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.pruning import Retention, prune

_EVERY_S = 600.0
_BATCH = 500


class Pruner:
    """The step that removes what is old."""

    def __init__(
        self, *, ledger: Ledger, retention: Retention, runtime: Runtime, may_prune: Callable[[], bool]
    ) -> None:
        self._ledger = ledger
        self._desk = ledger.desk("pruner")
        self._retention = retention
        self._runtime = runtime
        self._may_prune = may_prune
        self._begins = True

    def step(self, now: float) -> float:
        """Remove one batch; come back at once while there is more."""
        if self._begins or not self._may_prune():
            self._begins = False  # many nodes start together, and none of them to do this
            return now + _EVERY_S * (0.1 + self._runtime.random())
        if prune(self._ledger, self._desk, self._retention, limit=_BATCH):
            return now + 0.05
        self._desk.rest()
        return now + _EVERY_S * (0.5 + self._runtime.random())

    def close(self) -> None:
        """Let the connection go."""
        self._desk.rest()
