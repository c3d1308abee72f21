"""Giving up the runs of a dead node: first its death is recorded, then its runs are given up, in batches.

Both steps are level-triggered. If a node dies between them, another one finds the recorded death with runs left, and
continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencepost.core.events import Event, What
from fencepost.core.policy import Policy
from fencepost.core.retry import GiveUpLost, HoldForPerson, Rerun, after_loss
from fencepost.core.timings import DEFAULT_TTL_S
from fencepost.errors import ConfigurationError
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.jobs import jobs
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import died
from fencepost.ledger.reaping import Reaped, reap

_BATCH = 200  # runs per transaction, each with its attempt, key and successor
_UNFINISHED = """
SELECT DISTINCT r.node FROM {run} r JOIN {node} n ON n.id = r.node
WHERE r.state = 'running' AND (n.dead_at IS NOT NULL OR n.left_at IS NOT NULL)
"""


class LostNodeRuns:
    """Declares nodes dead, and gives up their runs.

    Policies are read from the ledger, because the dead node may have run jobs that this node does not know.
    """

    def __init__(
        self,
        ledger: Ledger,
        emit: Callable[[Event], None],
        *,
        ttl_s: float = DEFAULT_TTL_S,
        count: Callable[[Sequence[Reaped]], None] = lambda _: None,
    ) -> None:
        """Give up runs in `ledger`; `count` is called with those of each batch."""
        self._ledger = ledger
        self._emit = emit
        self._count = count
        self._ttl_us = round(ttl_s * 1_000_000)

    def declare_dead(self, connection: LedgerConnection, node_id: str, why: str) -> bool:
        """Record that a node is dead, and give up its runs. Return True if this was not recorded before."""
        is_first = connection.write(lambda cursor: died(self._ledger, cursor, node_id, why))
        self.give_up_runs(connection, node_id)
        return is_first

    def unfinished(self, connection: LedgerConnection) -> list[str]:
        """Return nodes that are recorded as dead or left and still have running runs."""
        statements = statements_for(connection)
        return [row[0] for row in connection.read(lambda cursor: statements.rows(cursor, _UNFINISHED))]

    def give_up_runs(self, connection: LedgerConnection, node_id: str) -> int:
        """Give up the running runs of a node that is dead or has left. Return how many there were."""
        policies = {job.name: job.policy for job in jobs(self._ledger, connection=connection)}

        def decide(job: str, crashes: int, /) -> Rerun | GiveUpLost | HoldForPerson:
            return after_loss(_policy(policies.get(job)), crashes=crashes)

        count = 0
        while reaped := reap(connection, node=node_id, limit=_BATCH, decide=decide, once_in_us=self._ttl_us):
            count += len(reaped)
            self._count(reaped)
            for run in reaped:
                self._emit(
                    Event(
                        What.RUN_DEAD if run.state == "dead" else What.RUN_LOST,
                        job=run.job,
                        run_id=run.run_id,
                        attempt=run.attempt,
                        token=run.token,
                        node=node_id,
                        reason=run.reason,
                    )
                )
        return count


def _policy(text: str | None) -> Policy:
    """Read a policy. One that is missing or that this release cannot read counts as the default."""
    try:
        return Policy.of() if text is None else Policy.from_json(text)
    except ConfigurationError:
        return Policy.of()
