"""Keeping what this program declares on record, not only when it starts.

Another program may have been started that declares the same jobs otherwise, or the last node of a later deploy may have
left. What then stands in the ledger is decided by `fencepost.ledger.declared`; here is only when it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.ledger.declared import Declarations, apply
from fencepost.ledger.ledger import Ledger

_EVERY_S = 60.0  # two that began at the same moment may have crossed each other
_SOON_S = 2.0


class Deploying:
    """The step that applies declarations when nodes came or went."""

    def __init__(
        self, *, ledger: Ledger, declared: Declarations, is_member: Callable[[], bool], on_changed: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._desk = ledger.desk("deploys")
        self._declared = declared
        self._is_member = is_member
        self._on_changed = on_changed
        self._mark: object = None
        self._is_due = False

    def nodes_changed(self, mark: object) -> bool:
        """Note what a look says of the nodes; return whether some came or went, so that it is time for a step."""
        has_changed, self._mark = mark != self._mark, mark
        self._is_due = self._is_due or has_changed
        return has_changed

    def step(self, now: float) -> float:
        """Apply what is declared here, unless somebody else's declarations stand."""
        if not self._is_member():
            return now + 1.0
        self._is_due = False
        try:
            applied = apply(self._ledger, self._declared, is_start=False, desk=self._desk)
        finally:
            self._desk.rest()
        if applied.synced.made or applied.synced.changed or applied.is_moved:
            self._on_changed()
        return now if self._is_due else now + (_SOON_S if applied.is_left else _EVERY_S)

    def close(self) -> None:
        """Let the connection go."""
        self._desk.rest()
