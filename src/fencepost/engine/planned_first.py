"""Planning before the first claim: due times that were missed while no node had the job are merged before a run starts.

A tick is planned a little ahead. If all nodes end just then, it is still queued when a node joins again, and the due
times since then are not planned yet: with *misfire once* all of them become one run. So the first claim under an
identity waits until the due schedules were planned once.

**Not promised.** That it waits as long as that takes: it waits for two seconds at most, and not at all if this node
may not plan.
"""

from __future__ import annotations

from fencepost.engine.node_state import NodeState

_LONGEST_S = 2.0  # if planning does not answer, claims must not wait for it any longer


class PlannedFirst:
    """Whether the first claim under an identity may be made. Used by the loop that claims."""

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._identity: str | None = None
        self._since = 0.0

    def may_claim(self, identity: str, now: float) -> bool:
        """Whether due schedules were planned since the first call with `identity`. If not, the planner is woken."""
        if identity != self._identity:
            self._identity, self._since = identity, now
        return now >= self._since + _LONGEST_S or self._node.planning.has_planned_since(self._since)
