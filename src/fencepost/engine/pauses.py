"""Pauses: how long this process was stalled, for choosing a ttl and for people who wonder.

A step that wants to be called every so often, and finds that much more time has passed, was held up: by a paused
container, a swapped-out process, C code that kept the interpreter to itself, a machine that slept.
"""

from __future__ import annotations

from fencepost.core.events import Event, What
from fencepost.engine.loop_step import LoopStep
from fencepost.engine.node_state import NodeState
from fencepost.ledger.nodes import note_pause

_EVERY_S = 0.5
_WORTH_REPORTING_S = 0.5  # a busy machine delays a step by tenths of a second


class Pauses(LoopStep):
    """The step that measures."""

    name = "pauses"

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._expected_at: float | None = None
        self._longest_s = 0.0

    def step(self, now: float) -> float:
        """Compare when this was called with when it should have been."""
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
