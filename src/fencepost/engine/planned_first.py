"""Planning before the first claim: what came due while no node had a job is put together before any of it begins.

A tick is planned a little ahead. If every node went down just then, it is still queued when one comes back, and the due
times since are not planned yet: with *misfire once* all of them are one run. So the first claim under an identity waits
until the due schedules were planned once.

**Not promised.** That it waits for ever: for two seconds at most, and not at all where this node may not plan.
"""

from __future__ import annotations

from fencepost.engine.node_state import NodeState

_LONGEST_S = 2.0


class PlannedFirst:
    """Whether the first claim under an identity may be made. Used by the loop that claims."""

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._identity: str | None = None
        self._since = 0.0

    def may_claim(self, identity: str, now: float) -> bool:
        """Whether due schedules were planned since this was first asked about `identity`; if not, have that done."""
        if identity != self._identity:
            self._identity, self._since = identity, now
        return now >= self._since + _LONGEST_S or self._node.planning.has_planned_since(self._since)
