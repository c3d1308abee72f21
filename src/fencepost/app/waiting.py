"""Why a run has not begun yet: one sentence."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from fencepost.app.held import held_because
from fencepost.app.records.runs import ABOUT_TO_BE_CLAIMED
from fencepost.core.duration import spelled
from fencepost.core.rights import ANOTHER_JOB
from fencepost.core.tick import spelled_us
from fencepost.ledger.history import RunFilter, RunRow, running_by_node, runs
from fencepost.ledger.nodes import NodeRow, living_nodes
from fencepost.ledger.queue_pauses import QueuePause, queue_pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fencepost.core.grants import Grant, SessionSight
    from fencepost.core.rights import Scope
    from fencepost.ledger.ledger import Ledger

    Sights = Callable[[Sequence[Grant]], Mapping[str, SessionSight] | None]

_LATE_US = 5_000_000  # a node claims within a poll of a second or two; after that, something is missing


class ClusterState:
    """What the nodes of a ledger do, read once for several runs, and only what is asked for."""

    def __init__(self, ledger: Ledger, sights: Sights) -> None:
        """Ask `ledger`; and `sights` for the sessions of nodes: None if the lease store does not answer."""
        self.ledger = ledger
        self._sights = sights

    @cached_property
    def held(self) -> str | None:
        """Why nodes do nothing."""
        return held_because(self.ledger)

    @cached_property
    def nodes(self) -> Sequence[NodeRow]:
        """The living nodes."""
        return living_nodes(self.ledger)

    @cached_property
    def overdue(self) -> Mapping[str, SessionSight | None]:
        """The living nodes that have not renewed their leases for the ttl, by id: None stands for no lease at all."""
        sights = self._sights([node.grant for node in self.nodes])
        if sights is None:
            return {}
        seen = {node.id: sights.get(node.grant_id) for node in self.nodes}
        return {node_id: sight for node_id, sight in seen.items() if sight is None or not sight.is_current}

    @cached_property
    def pauses(self) -> Sequence[QueuePause]:
        """The pauses of queues, and of everything."""
        return queue_pauses(self.ledger)

    @cached_property
    def running(self) -> Mapping[str, int]:
        """How many runs each node has."""
        return running_by_node(self.ledger)

    @cached_property
    def now_us(self) -> int:
        """The time of the ledger's clock when it was first asked for."""
        return self.ledger.now_us()


def why_it_waits(cluster: ClusterState, row: RunRow, scope: Scope) -> str | None:
    """Say what a run waits for; None if it does not wait. Jobs outside of `scope` are not named."""
    match row.state, row.waits_for:
        case "waiting", "key":
            holder = _holder(cluster.ledger, row, scope)
            return f"it waits until {holder} is done, which has the key {row.exclusive_key!r}"
        case "waiting", "person":
            return f"it is held for a person ({row.why or 'no reason was given'}): fencepost release {row.id}"
        case "waiting", "node":
            return cluster.held or _in_queue(cluster, row)
        case "waiting", _:
            return _its_time(row)
        case "queued", _:
            return cluster.held or _in_queue(cluster, row)
    return None


def _holder(ledger: Ledger, row: RunRow, scope: Scope) -> str:
    running = runs(ledger, RunFilter(states=("running",), exclusive_key=row.exclusive_key), limit=1)
    if not running:
        return "another run"
    return f"run {running[0].id} of {running[0].job}" if scope.sees(running[0].job) else f"a run of {ANOTHER_JOB}"


def _its_time(row: RunRow) -> str:
    at_us = row.available_at - row.available_at % 1_000_000
    what = f"attempt {row.attempts + 1} begins at" if row.attempts else "its time is"
    return f"{what} {spelled_us(at_us).replace('T', ' ')}"


def _in_queue(cluster: ClusterState, row: RunRow) -> str:
    nodes, now_us = cluster.nodes, cluster.now_us
    if row.available_at > now_us:
        return _its_time(row)
    if (pause := next((each for each in cluster.pauses if each.concerns(row.queue)), None)) is not None:
        return str(pause)
    return _unserved(row, nodes) or _none_renews(cluster, row) or _not_claimed(cluster, row)


def _unserved(row: RunRow, nodes: Sequence[NodeRow]) -> str | None:
    """Say that no living node takes such runs; None if one does."""
    if not nodes:
        return "there is no living node to run it: fencepost run APP starts one"
    if not any(row.job in node.jobs for node in nodes):
        return f"none of the {len(nodes)} living nodes has the job {row.job!r}"
    if not any(row.job in node.jobs and row.queue in node.queues for node in nodes):
        return f"no living node with this job takes runs from the queue {row.queue!r}"
    return None


def _none_renews(cluster: ClusterState, row: RunRow) -> str | None:
    """Say that all nodes that take such runs seem dead; None if one of them renews its lease."""
    taking = [node for node in cluster.nodes if row.job in node.jobs and row.queue in node.queues]
    if any(node.id not in cluster.overdue for node in taking):
        return None
    last = max(taking, key=lambda node: sight.renewed_at_us if (sight := cluster.overdue[node.id]) else 0)
    sight, others = cluster.overdue[last.id], len(taking) - 1
    since = "" if sight is None else f" for {spelled(round(sight.age_s))} (ttl {spelled(sight.ttl_s)})"
    whole = sum(row.job in node.jobs for node in cluster.nodes) == len(taking)
    what = "this job" if whole else f"this job and the queue {row.queue!r}"
    if others:
        who, are = f"{last.name} and {others} other{'s' if others > 1 else ''} have", "they are"
        lacks = "none of them has renewed its lease"
    else:
        who, are = f"{last.name} has", "it is"
        lacks = "it has not renewed its lease" if sight else "it has no lease any more"
    return f"only {who} {what}, and {lacks}{since}: {are} probably dead; start a node: fencepost run APP"


def _not_claimed(cluster: ClusterState, row: RunRow) -> str:
    if cluster.now_us - row.available_at <= _LATE_US:
        return ABOUT_TO_BE_CLAIMED
    serving = [node for node in cluster.nodes if row.job in node.jobs and row.queue in node.queues]
    able = [node for node in serving if node.draining_at is None and node.id not in cluster.overdue]
    if not able:
        return "every node that could run it drains, and takes no more runs"
    return _unclaimed(able, cluster.running)


def _unclaimed(able: Sequence[NodeRow], running: Mapping[str, int]) -> str:
    idle = [node.name for node in able if running.get(node.id, 0) < node.slots]
    if not idle:
        return f"every node that could run it is busy ({len(able)} of them; places: {sum(n.slots for n in able)})"
    return (
        f"{idle[0]} could run it and seems to have room, but has not claimed it: is that node working? See its log "
        "and fencepost journal"
    )
