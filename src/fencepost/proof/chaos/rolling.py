"""Rolling restarts: node after node leaves and is started again, and halfway through a deploy is rolled out.

From then on, a restarted node has the application of the second deploy, which has one more job, and another one
under a new name. So for a while nodes of both deploys run side by side, and the node that claims a tick must have
its job. Under both names, each due time runs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fencepost.proof.chaos.course import Act, ChaosStage
from fencepost.proof.chaos.variables import DEPLOY

_LEAVE_WITHIN_S = 8.0  # the grace of nodes is 3 s; what has not left by then is killed


def rolling(nodes: Sequence[str], *, rounds: int) -> list[Act]:
    """Return the acts: every node `rounds` times, evenly spread; the second half of the rounds, rounded up, deploys."""
    turns = [(number, name) for number in range(rounds) for name in nodes]
    return [
        Act((place + 1) / (len(turns) + 2), partial(_restart, name, 2 if 2 * number + 1 >= rounds else 1))
        for place, (number, name) in enumerate(turns)
    ]


def _restart(name: str, deploy: int, stage: ChaosStage) -> None:
    actor = stage.cast.actors[name]
    actor.env = {**actor.env, DEPLOY: str(deploy)}
    stage.director.send_away(name, within_s=_LEAVE_WITHIN_S)
    stage.director.let_in(name)
