"""The loops of a node, in the order in which they begin. To add one, add a file with its `LoopStep` and a line here."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.engine.deploying import Deploying
from fencepost.engine.exchange import Exchange
from fencepost.engine.figure_writer import FigureWriter
from fencepost.engine.lateness import Lateness
from fencepost.engine.listening import Listening
from fencepost.engine.logs.writer import LogWriter
from fencepost.engine.loop_step import LoopStep
from fencepost.engine.membership import Membership
from fencepost.engine.node_state import NodeState
from fencepost.engine.pauses import Pauses
from fencepost.engine.planner import Planner
from fencepost.engine.pruner import Pruner
from fencepost.engine.reaper import Reaper

MakeStep = Callable[[NodeState], LoopStep | None]
"""Makes the step of a loop; None if this node does not need the loop."""

LOOPS: tuple[MakeStep, ...] = (
    Membership,  # first: it joins before any other loop begins, and leaves when all of them have ended
    Exchange,
    Planner,
    Reaper,
    Pruner,
    Pauses,
    Lateness.where_promised,
    Deploying.where_declared,
    Listening,
    LogWriter.where_kept,
    FigureWriter,  # last: when the others settle, it writes what they have counted
)


def steps_of(node: NodeState, loops: tuple[MakeStep, ...] = LOOPS) -> list[LoopStep]:
    """Make the steps that this node needs."""
    return [step for make in loops if (step := make(node)) is not None]
