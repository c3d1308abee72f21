"""Whether anything has changed: one statement that open pages share, and that costs little however long history is."""

from __future__ import annotations

from fencepost.ledger.database import Database
from fencepost.ledger.dialects.statements import statements_for

# What runs is little: nodes have slots. Everything else that changes makes a run, or is noted.
_CHANGES = """
SELECT (SELECT max(r.id) FROM {run} r), (SELECT max(j.id) FROM {journal} j),
  (SELECT max({greatest}(n.started_at, coalesce(n.draining_at, 0), coalesce(n.left_at, 0), coalesce(n.dead_at, 0)))
    FROM {node} n),
  t.number, t.tokens, t.progress, t.cancels
FROM (SELECT count(*) AS number, sum(r.token) AS tokens, sum(r.progress) AS progress,
        count(r.cancel_requested_at) AS cancels
      FROM {run} r WHERE r.state = 'running') t
"""


def changes(database: Database) -> str:
    """Return a text that is another one as soon as a run, the journal or a node has changed. It says nothing else."""
    hot = statements_for(database)
    [row] = database.read(lambda cursor: hot.rows(cursor, _CHANGES))
    return " ".join(map(str, row))
