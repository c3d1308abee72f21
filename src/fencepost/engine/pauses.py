"""The loop that measures how long this process was paused; this helps to choose a ttl and to explain lost sessions.

If much more time than expected has passed between two steps, the process was paused: by a paused container, swapping,
C code that held the interpreter lock, or a suspended machine.
"""

from __future__ import annotations

from fencepost.core.events import Event, What
from fencepost.engine.loop_step import LoopStep
from fencepost.engine.node_state import NodeState
from fencepost.ledger.nodes import note_pause

_EVERY_S = 0.5  # short against every trust margin, and no measurable load
_WORTH_REPORTING_S = 0.5  # a busy machine delays a step by tenths of a second


class Pauses(LoopStep):
    """The step that measures pauses."""

    name = "pauses"

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._expected_at: float | None = None
        self._longest_s = 0.0

    def step(self, now: float) -> float:
        """Compare the time of this call with the expected time."""
        expected_at, self._expected_at = self._expected_at, now + _EVERY_S
        if expected_at is not None and now - expected_at > _WORTH_REPORTING_S:
            self._report(now - expected_at)
        return self._expected_at

    def _report(self, paused_s: float) -> None:
        node = self._node
        self._longest_s = max(self._longest_s, paused_s)
        node.emit(Event(What.PROCESS_PAUSED, node=node.node_id or "-", held_s=paused_s))
        if (node_id := node.node_id) is not None:
            with node.connection() as connection:
                note_pause(node.ledger, node_id, round(self._longest_s * 1_000_000), connection=connection)
