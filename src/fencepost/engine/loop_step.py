"""A step: what one loop of a node does. `engine.loops` lists the steps, and `engine.node` runs each on its own task.

A loop is one file with a subclass of `LoopStep`, and one line in `engine.loops`. Most need only `name` and `step`. The
other methods are for loops that accept work, wait for external events, or hold resources::

    start ──▶ begin ──▶ step, step, step …                              (each loop on its own task)
    stop  ──▶ drain ──▶ step … until `is_empty` ──▶ interrupt ──▶ settle ──▶ close

`begin` and `close` are called in the order of the list: the membership joins first, and leaves before the others close.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from fencepost.engine.node_state import NodeState


class LoopStep(ABC):
    """What one loop does. It is made with the `NodeState` of its node, and reaches other loops only through that."""

    name: ClassVar[str]
    """The name of the loop: of its task, in error reports, and for `NodeState.wake`."""

    acts_only_as_member: ClassVar[bool] = False
    """Whether a step without an identity makes no call to the ledger, so that its success does not end a problem."""

    def begin(self) -> None:
        """Prepare for the first step, on the task that starts the node. If this raises, the node does not start."""
        return

    @abstractmethod
    def step(self, now: float) -> float:
        """Do what is due at the monotonic time `now`, and return the monotonic time of the next call.

        An error that it raises is reported once, and the step is retried after a pause.
        """

    def drain(self) -> None:
        """Accept no more work, because the node is stopping. Steps continue."""
        return

    @property
    def is_empty(self) -> bool:
        """Whether all accepted work is in the ledger. A node that stops waits for this for a limited time."""
        return True

    def interrupt(self) -> None:
        """Make a step return that waits for an external event, because the loop was asked to end."""
        return

    def settle(self, now: float) -> None:
        """Do what the last step left undone. Called after the loop has ended; not if its step hangs."""
        return

    def close(self) -> None:
        """Release connections, leases, or the membership. All loops were asked to end before."""
        return


class LedgerStep(LoopStep):
    """A step that uses the ledger, on its own connection."""

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._ledger = node.ledger
        self._connection = node.ledger.connect(self.name)

    def close(self) -> None:
        """Release the connection."""
        self._connection.rest()
