"""The loop that watches SLAs: a run that has not ended by its job's SLA is reported and recorded once, and continues.

Each node looks periodically for late runs of its jobs: queued, waiting, or running on any node. The node that executed
a run remembers it if it ended late between two looks. A node none of whose jobs has an SLA never queries.

**Not promised.** That a late run is noticed at once: it may take half the shortest SLA, and up to 30 s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim
from fencepost.engine.loop_step import LedgerStep
from fencepost.engine.node_state import NodeState
from fencepost.ledger.lateness import Late, note_late, note_late_ends

_SELDOM_S = 30.0  # an SLA of hours need not be checked more often
_OFTEN_S = 1.0  # half of an SLA, but no more than one look a second
_LONG_S = 10.0  # the connection is not kept open during pauses of this length or more
_BATCH = 500  # runs per statement
_MOST_REMEMBERED = 10_000  # bounds memory while the ledger does not answer; the rest is found by looking
_SLACK_US = 1_000_000  # the ledger's clock and the node's measurement differ a little; the ledger decides


class Lateness(LedgerStep):
    """The step that finds late runs."""

    name = "lateness"

    def __init__(self, node: NodeState, sla_us: Mapping[str, int]) -> None:
        super().__init__(node)
        self._emit = node.emit
        self._sla_us = sla_us
        self._every_s = min(max(min(sla_us.values()) / 2_000_000, _OFTEN_S), _SELDOM_S)
        self._ended: deque[int] = deque(maxlen=_MOST_REMEMBERED)
        node.policies.on_end = self.ended

    @classmethod
    def where_promised(cls, node: NodeState) -> Lateness | None:
        """Make the step if a job of the node has an SLA."""
        sla_s = {name: job.policy.sla_s for name, job in node.jobs.items()}
        sla_us = {name: round(each * 1_000_000) for name, each in sla_s.items() if each is not None}
        return cls(node, sla_us) if sla_us else None

    def ended(self, claim: Claim, took_us: int) -> None:
        """Remember an attempt that ended, if it may be late. May be called from any thread."""
        sla_us = self._sla_us.get(claim.job)
        if sla_us is None:
            return
        since_us = claim.available_at_us if claim.due_at_us is None else claim.due_at_us
        # A later attempt has another `available_at_us`, which says nothing about that of the first attempt.
        if claim.attempt > 1 or claim.claimed_at_us + took_us + _SLACK_US > since_us + sla_us:
            self._ended.append(claim.run_id)

    def step(self, now: float) -> float:
        """Record late runs, and return when to look again."""
        late = note_late(self._connection, jobs=list(self._sla_us))
        while batch := [self._ended.popleft() for _ in range(min(len(self._ended), _BATCH))]:
            late += note_late_ends(self._connection, run_ids=set(batch))
        for each in late:
            self._emit_missed(each)
        if self._every_s >= _LONG_S:
            self._connection.rest()
        return now + self._every_s

    def _emit_missed(self, late: Late) -> None:
        self._emit(
            Event(
                What.SLA_MISSED,
                job=late.job,
                run_id=late.run_id,
                token=late.token or None,
                node=late.node,
                reason=late.reason,
            )
        )
