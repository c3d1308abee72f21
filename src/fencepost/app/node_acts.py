"""What operators do to all nodes, or to one: pause queues, and drain a node."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.app.looking import Looking
from fencepost.app.queue_pauses import QueuePauses
from fencepost.app.records import NodeRecord
from fencepost.app.scoped import acting, actor
from fencepost.core.rights import HumanAct
from fencepost.ledger.draining import ask_to_drain
from fencepost.ledger.history import running_by_node


class NodeActs(Looking):
    """Acts on nodes. `Operations` has them."""

    _wake: Callable[[], None]

    @property
    def pauses(self) -> QueuePauses:
        """Pauses of a queue, or of everything: list, pause, resume."""
        return QueuePauses(self._ledger, self._scope, self._wake)

    def drain_node(self, node: str, *, by: str, reason: str | None = None) -> NodeRecord:
        """Ask a living node, by its id or name, to claim nothing more, to finish its runs, and to leave.

        It waits for its runs as long as they take. There is no way back; a second request has no effect.
        """
        self._scope.require(HumanAct.DRAIN_NODE)
        who = actor(self._scope, by)
        with acting(self._scope):
            found = ask_to_drain(self._ledger, node, by=who, reason=reason)
        self._wake()
        return NodeRecord.of(found, running=running_by_node(self._ledger).get(found.id, 0))
