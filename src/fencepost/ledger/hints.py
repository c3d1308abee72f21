"""Whether anything has changed: one statement that open pages share, and that costs little however long history is."""

from __future__ import annotations

from fencepost.ledger.database import Database
from fencepost.ledger.dialects.statements import statements_for

# What runs is little: nodes have slots. A run that begins and ends between two looks is seen by the newest runs, or by
# what waits. Everything else that changes makes a run, or is noted.
_CHANGES = """
SELECT (SELECT max(r.id) FROM {run} r), (SELECT max(j.id) FROM {journal} j),
  (SELECT max({greatest}(n.started_at, coalesce(n.draining_at, 0), coalesce(n.left_at, 0), coalesce(n.dead_at, 0)))
    FROM {node} n),
  (SELECT count(*) FROM (SELECT r.id FROM {run} r WHERE r.state = 'queued' LIMIT 1000) q),
  (SELECT count(*) FROM (SELECT r.id FROM {run} r WHERE r.state = 'waiting' LIMIT 1000) w),
  t.number, t.tokens, t.progress, t.cancels, l.ended, l.latest
FROM (SELECT count(*) AS number, sum(r.token) AS tokens, sum(r.progress) AS progress,
        count(r.cancel_requested_at) AS cancels
      FROM {run} r WHERE r.state = 'running') t,
  (SELECT count(e.ended_at) AS ended, max(e.ended_at) AS latest
      FROM (SELECT r.ended_at FROM {run} r ORDER BY r.id DESC LIMIT 200) e) l
"""


def changes(database: Database) -> str:
    """Return a text that is another one as soon as a run, the journal or a node has changed. It says nothing else."""
    hot = statements_for(database)
    [row] = database.read(lambda cursor: hot.rows(cursor, _CHANGES))
    return " ".join(map(str, row))
