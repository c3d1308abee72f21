"""Looking: an idle node asks with one query whether there is something to do, however much the ledger holds."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.statements import statements_for


class Look(NamedTuple):
    """What there is to do, and when.

    `is_due`: a run of these jobs may be claimed now. `next_available_at_us`: when the next one may be, after now.
    `nodes_mark` changes when a node joins, drains, leaves or is declared dead. `cancels`: a run of this node is to
    stop. `keys_are_awaited`: a run of any job waits for an exclusive key. `is_living`: the ledger has this node, and
    its end is not noted. `journal_mark` changes with every entry in the journal. `pauses`: how many pauses of queues,
    or of everything, last. `drain_is_asked`: a person has asked that this node drains.
    """

    now_us: int
    next_available_at_us: int | None
    next_due_at_us: int | None
    next_waiting_at_us: int | None
    nodes_mark: int
    cancels: bool
    is_due: bool
    keys_are_awaited: bool
    is_living: bool = True
    journal_mark: int = 0
    pauses: int = 0
    drain_is_asked: bool = False


# The job is hidden from the query planner: few runs are queued, but a job may have many runs in history. The clock is
# read once: otherwise a run that becomes due between two readings would be neither due nor upcoming.
_LOOK = """
SELECT t.now,
  (SELECT min(r.available_at) FROM {run} r
    WHERE r.state = 'queued' AND {texts:r.queue} AND {texts:coalesce(r.job, '')} AND r.available_at > t.now),
  (SELECT s.next_due_at FROM {schedule} s{ready} WHERE s.next_due_at IS NOT NULL AND s.no_node_since IS NULL
    ORDER BY s.next_due_at LIMIT 1),
  (SELECT r.available_at FROM {run} r WHERE r.state = 'waiting' AND r.waits_for = 'time'
    ORDER BY r.available_at LIMIT 1),
  (SELECT max({greatest}(n.started_at, coalesce(n.draining_at, 0), coalesce(n.left_at, 0), coalesce(n.dead_at, 0)))
    FROM {node} n),
  EXISTS (SELECT 1 FROM {run} r WHERE r.state = 'running' AND r.node = %s AND r.cancel_requested_at IS NOT NULL),
  EXISTS (SELECT 1 FROM {run} r
    WHERE r.state = 'queued' AND {texts:r.queue} AND {texts:coalesce(r.job, '')} AND r.available_at <= t.now),
  EXISTS (SELECT 1 FROM {run} r WHERE r.state = 'waiting' AND r.waits_for = 'key'),
  EXISTS (SELECT 1 FROM {node} n WHERE n.id = %s AND n.left_at IS NULL AND n.dead_at IS NULL),
  (SELECT max(j.id) FROM {journal} j),
  (SELECT count(*) FROM {pause} z WHERE z.until IS NULL OR z.until > t.now),
  (SELECT n.drain_asked_at FROM {node} n WHERE n.id = %s)
FROM (SELECT {clock} AS now) t
"""


def look(connection: LedgerConnection, *, node: str, queues: Collection[str], jobs: Collection[str]) -> Look:
    """Return what there is to do for a node that takes runs of these jobs from these queues."""
    statements = statements_for(connection)
    ours = (statements.texts(queues), statements.texts(jobs))
    [row] = connection.read(
        lambda cursor: statements.rows(cursor, _LOOK, *ours, node, *ours, node, node, *statements.clock())
    )
    now_us, available_at, due_at, waiting_at, mark, *answers, journal_mark, pauses, drain_asked_at = row
    times = (int(now_us), available_at, due_at, waiting_at)
    found = Look(*times, mark or 0, *map(bool, answers))
    return found._replace(journal_mark=journal_mark or 0, pauses=pauses, drain_is_asked=drain_asked_at is not None)


_CANCELS = """
SELECT r.id, r.token FROM {run} r
WHERE r.state = 'running' AND r.node = %s AND r.cancel_requested_at IS NOT NULL ORDER BY r.id
"""


def cancels(connection: LedgerConnection, *, node: str) -> list[tuple[int, int]]:
    """Return the runs of this node that are to be cancelled, with their tokens."""
    statements = statements_for(connection)
    return [
        (run_id, token) for run_id, token in connection.read(lambda cursor: statements.rows(cursor, _CANCELS, node))
    ]
