"""The listener: hints from other processes wake the exchange before its next look is due.

Hints are optional: polling finds the same changes later. So an error here is not reported.
"""

from __future__ import annotations

from fencepost.engine.loop_step import LoopStep
from fencepost.engine.node_state import NodeState
from fencepost.ledger.waking import listener

_ROUND_S = 1.0  # how long stopping may wait for this loop


class Listening(LoopStep):
    """The step that waits for hints."""

    name = "listener"

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._listener = listener(node.ledger)

    def step(self, now: float) -> float:
        """Wait for a hint, and pass it on."""
        try:
            if self._listener.wait(_ROUND_S):
                self._node.hint()
        except Exception:  # noqa: BLE001 - as above
            return now + _ROUND_S
        return now

    def interrupt(self) -> None:
        """End the wait."""
        self._listener.close()

    def settle(self, now: float) -> None:
        """Release the connection, if the last wait had ended before `interrupt`."""
        self._listener.wait(0.0)
