"""Whether anything has changed: one statement that open pages share, and that costs little however long history is."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.core.states import WaitsFor
from fencepost.ledger.database import Database
from fencepost.ledger.dialects.statements import statements_for

# What runs is little: nodes have slots. A run that begins and ends between two looks is seen by the newest runs, or by
# what waits. Everything else that changes makes a run, or is noted.
_CHANGES = """
SELECT {clock}, (SELECT h.n FROM {audit_head} h), (SELECT max(b.seen_at) FROM {job} b),
  (SELECT max(r.id) FROM {run} r), (SELECT max(j.id) FROM {journal} j),
  (SELECT max({greatest}(n.started_at, coalesce(n.draining_at, 0), coalesce(n.left_at, 0), coalesce(n.dead_at, 0)))
    FROM {node} n),
  (SELECT count(*) FROM (SELECT r.id FROM {run} r WHERE r.state = 'queued' LIMIT 1000) q),
  <waiting>,
  t.number, t.tokens, t.progress, t.cancels, l.ended, l.latest
FROM (SELECT count(*) AS number, sum(r.token) AS tokens, sum(r.progress) AS progress,
        count(r.cancel_requested_at) AS cancels
      FROM {run} r WHERE r.state = 'running') t,
  (SELECT count(e.ended_at) AS ended, max(e.ended_at) AS latest
      FROM (SELECT r.ended_at FROM {run} r ORDER BY r.id DESC LIMIT 200) e) l
"""
# Each of these has an index of its own; the state alone has none everywhere.
_WAITING = "SELECT r.id FROM {run} r WHERE r.state = 'waiting' AND r.waits_for = '%s' LIMIT 1000"
_COUNTED = ", ".join(f"(SELECT count(*) FROM ({_WAITING % each.value}) w)" for each in WaitsFor)  # noqa: S608 - no value
_CHANGES = _CHANGES.replace("<waiting>", _COUNTED)


class Changes(NamedTuple):
    """A text that is another one as soon as a run, the journal or a node has changed. It says nothing else.

    `rights`: the same for what people may do, as far as it is known who changed it: all such changes are in the audit,
    but for the parts that a deploy declares. `now_us`: the ledger's time.
    """

    mark: str
    rights: str
    now_us: int


def changes(database: Database) -> Changes:
    """Return what is another value as soon as something has changed."""
    hot = statements_for(database)
    [row] = database.read(lambda cursor: hot.rows(cursor, _CHANGES, *hot.clock()))
    now_us, acts, seen_at, *rest = row
    return Changes(" ".join(map(str, rest)), f"{acts} {seen_at}", int(now_us))
