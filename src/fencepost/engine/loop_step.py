"""A step: what one loop of a node does. `engine.loops` lists them, and `engine.node` runs each on a task of its own.

A loop is one file with a subclass of `LoopStep`, and one line in `engine.loops`. Most need `name` and `step` alone. The
other methods are for loops that take on work, wait for something outside, or hold what has to be given back::

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
    """Names the loop in its task, in reports of trouble, and for `NodeState.wake`."""

    acts_only_as_member: ClassVar[bool] = False
    """Whether a step without an identity asks the ledger for nothing, so that its success does not end a trouble."""

    def begin(self) -> None:
        """Prepare for the first step, on the task that starts the node. If this raises, the node does not start."""
        return

    @abstractmethod
    def step(self, now: float) -> float:
        """Do what is due at the monotonic reading `now`; return the reading at which to be called again.

        What it raises is reported once, and the step is repeated after a pause.
        """

    def drain(self) -> None:
        """Take on nothing more: the node is stopping. Steps go on."""
        return

    @property
    def is_empty(self) -> bool:
        """Whether everything that it took on has reached the ledger. A node that stops waits for this, for a while."""
        return True

    def interrupt(self) -> None:
        """Make a step return that waits for something outside: the loop was told to end."""
        return

    def settle(self, now: float) -> None:
        """Do what the last step left undone. Called after the loop has ended; not if its step hangs."""
        return

    def close(self) -> None:
        """Give back what it holds: connections, leases, its place among the nodes. All loops were told to end."""
        return


class LedgerStep(LoopStep):
    """A step that works with the ledger, on a connection of its own."""

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._ledger = node.ledger
        self._connection = node.ledger.connect(self.name)

    def close(self) -> None:
        """Let the connection go."""
        self._connection.rest()
