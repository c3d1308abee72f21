"""Promoting: a run that waits for an exclusive key is queued when the key is free.

It is queued, not started. The node that claims it finds the key free, or taken again, and decides anew. So promoting
one run too many is harmless, but promoting none would leave it waiting for ever. Therefore the transaction that frees a
key promotes the next in line. `promote_stranded` is called from time to time, for runs that were not promoted: because
the run before it in line was cancelled, or belongs to a job that no node knows any more, or because a row was changed
by hand.
"""

from __future__ import annotations

from collections.abc import Collection

from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, listed, statements_for

_NEXT = """
SELECT (SELECT r.id FROM {run} r WHERE r.state = 'waiting' AND r.waits_for = 'key' AND r.exclusive_key = e.name
  ORDER BY r.priority DESC, r.id LIMIT 1) FROM {rows:e name=text}
"""
_PROMOTE = """
UPDATE {run} SET state = 'queued', waits_for = NULL, why = NULL
WHERE {ints:id} AND {was:state} = 'waiting' AND {was:waits_for} = 'key'
"""
# A transaction that locks a waiting run, for example to cancel it, commits soon; then the next in line is searched for.
_ROUNDS = 5


def promote(cursor: Cursor, statements: LedgerStatements, keys: Collection[str]) -> int:
    """Queue the most urgent run that waits for each of these free keys; return how many.

    Call it in the transaction that freed the keys, while their rows are locked.
    """
    promoted = 0
    for _ in range(_ROUNDS):
        found = [
            row[0] for row in statements.rows(cursor, _NEXT, listed([[key] for key in keys])) if row[0] is not None
        ]
        if not found:
            break
        promoted += (changed := statements.change(cursor, _PROMOTE, statements.ints(sorted(found))))
        if changed == len(found):
            break
    if promoted:
        statements.notify(cursor)
    return promoted


_STRANDED = """
SELECT w.name FROM (
  SELECT DISTINCT r.exclusive_key AS name FROM {run} r WHERE r.state = 'waiting' AND r.waits_for = 'key') w
WHERE coalesce((SELECT h.state FROM {run} h WHERE h.id = (SELECT x.run_id FROM {exclusive} x WHERE x.key = w.name)), '')
  <> 'running' LIMIT 500
"""
_HOLDERS = "SELECT x.key, x.run_id FROM {exclusive} x WHERE {texts:x.key} ORDER BY x.key{for_update}"
_RUNNING = "SELECT r.id FROM {run} r WHERE {ints:r.id} AND r.state = 'running'"
_FREE = "UPDATE {exclusive} SET run_id = NULL WHERE {texts:{key}}"


def promote_stranded(connection: LedgerConnection) -> int:
    """Queue runs that wait for a key that no running run holds; return how many. Called periodically."""
    statements = statements_for(connection)
    keys = sorted(row[0] for row in connection.read(lambda cursor: statements.rows(cursor, _STRANDED)))
    return connection.write(lambda cursor: _promote_free(cursor, statements, keys)) if keys else 0


def _promote_free(cursor: Cursor, statements: LedgerStatements, keys: Collection[str]) -> int:
    """Promote for the keys that are free. A key whose holder is not running any more is freed first."""
    holders = dict(statements.rows(cursor, _HOLDERS, statements.texts(keys)))
    held_by = sorted(run_id for run_id in holders.values() if run_id is not None)
    running = {row[0] for row in statements.rows(cursor, _RUNNING, statements.ints(held_by))} if held_by else set()
    free = [key for key in keys if holders.get(key) not in running]
    left = [key for key in free if holders.get(key) is not None]
    if left:
        statements.change(cursor, _FREE, statements.texts(left))
    return promote(cursor, statements, free) if free else 0
