"""Parking: queued runs that no living node can take are set aside, so that claims do not have to read past them.

A claim reads the queue in its order. Runs of a job that no node has (it was removed, or its program is down) would stay
at the head, and every claim of every other program would read past them. Runs in a queue that no node takes from any
more (it was renamed after they were requested) would stay there unnoticed. So ten minutes after the last node that
could take them has ended, they are changed to wait (`waits_for` is ``node``). They are queued again, at their old
place, as soon as a living node has their job and takes runs from their queue.

**Promises.** Only the state changes. A run is parked only if the rows of nodes, read in the same transaction, show that
no node can take it. Parked runs are compared with the living nodes whenever a node joins or ends, and once a minute.

**Not promised.** That a version that does not know this state queues parked runs. So nothing is parked while a node of
such a version is alive, or was within the last day, while a release may still be rolled back. When the last node of a
version that knows the state leaves in an orderly way, it queues all parked runs again, if there is a row of an older
node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, statements_for
from fencepost.ledger.serving import (
    WARNED_AFTER_US,
    Served,
    UnservedJob,
    is_first_to_note,
    last_served_us,
    queue_of,
    served_now,
)
from fencepost.schema.revisions import known_by

_KNOWN_SINCE = 4  # the migration step that introduced parking
_ROLL_BACK_US = 24 * 3600 * 1_000_000  # how long after a release it may still be rolled back
BATCH = 2000  # runs per transaction: short locks, and a year of a minutely job in a few hundred steps

_JOBS = "SELECT j.name, j.policy FROM {job} j"
# The job is hidden from the query planner: few runs are queued, but a job may have many runs in history.
_FIND = """
SELECT r.id, r.job, r.queue FROM {run} r
WHERE r.state = 'queued' AND {texts:coalesce(r.job, '')} AND r.available_at <= %s
"""
_NEXT_QUEUE = "SELECT min(r.queue) FROM {run} r WHERE r.state = 'queued' AND r.queue > %s"
_FIND_IN = """
SELECT r.id, r.job, r.queue FROM {run} r WHERE r.state = 'queued' AND {texts:r.queue} AND r.available_at <= %s
"""
_PARK = "UPDATE {run} SET state = 'waiting', waits_for = 'node' WHERE {ints:id} AND {was:state} = 'queued'"
_PARKED = """
SELECT r.job, r.queue FROM {run} r WHERE r.state = 'waiting' AND r.waits_for = 'node' GROUP BY r.job, r.queue
"""
_FIND_PARKED = """
SELECT r.id FROM {run} r WHERE r.state = 'waiting' AND r.waits_for = 'node' AND r.job = %s AND r.queue = %s
"""
_UNPARK = """
UPDATE {run} SET state = 'queued', waits_for = NULL
WHERE {ints:id} AND {was:state} = 'waiting' AND {was:waits_for} = 'node'
"""
_RECENT = """
SELECT DISTINCT n.version FROM {node} n
WHERE n.left_at IS NULL AND n.dead_at IS NULL OR coalesce(n.dead_at, n.left_at) > %s
"""
_NODES = "SELECT DISTINCT n.version, n.left_at IS NULL AND n.dead_at IS NULL FROM {node} n WHERE n.id <> %s"


class Parked(NamedTuple):
    """The number of runs that were parked, and those of their jobs that no warning was noted for before."""

    runs: int
    missed: list[UnservedJob]


def park(connection: LedgerConnection) -> Parked:
    """Park up to `BATCH` runs that no living node could take for ten minutes."""
    statements = statements_for(connection)
    return connection.write(lambda cursor: Parked(*_park(cursor, statements)))


def _park(cursor: Cursor, statements: LedgerStatements) -> tuple[int, list[UnservedJob]]:
    now_us, served = statements.now_us(cursor), served_now(cursor, statements)
    pairs = [(name, queue_of(policy)) for name, policy in statements.rows(cursor, _JOBS)]
    unserved = {job for job, queue in pairs if not served.has(job, queue)}
    untaken = [queue for queue in _queues(cursor, statements) if not served.takes_from(queue)]
    rows = _found(cursor, statements, _FIND, unserved, now_us) or _found(cursor, statements, _FIND_IN, untaken, now_us)
    since = last_served_us(cursor, statements, {(job, queue) for _, job, queue in rows}, now_us=now_us) if rows else {}
    left = [
        (run_id, job, queue)
        for run_id, job, queue in rows
        if not served.has(job, queue) and since[job, queue] <= now_us - WARNED_AFTER_US
    ]
    if not left:
        return 0, []
    served_elsewhere = {job for _, job, _ in left} - unserved
    missed = _noted(cursor, statements, left, since, now_us=now_us, served_elsewhere=served_elsewhere)
    if _had_older(cursor, statements, now_us):
        return 0, missed
    statements.change(cursor, _PARK, statements.ints([run_id for run_id, _, _ in left]))
    return len(left), missed


def _had_older(cursor: Cursor, statements: LedgerStatements, now_us: int) -> bool:
    """Whether a node of a version without parking is alive, or was within `_ROLL_BACK_US`."""
    return any(
        known_by(version) < _KNOWN_SINCE for (version,) in statements.rows(cursor, _RECENT, now_us - _ROLL_BACK_US)
    )


def _found(cursor: Cursor, statements: LedgerStatements, find: str, among: Collection[str], now_us: int) -> list[Any]:
    if not among:
        return []
    asked = (statements.texts(sorted(among)), now_us - WARNED_AFTER_US)
    return statements.rows(cursor, f"{find} LIMIT {BATCH}{{skip_locked}}", *asked)


def _queues(cursor: Cursor, statements: LedgerStatements) -> Iterator[str]:
    """Yield the queues that contain runs, with one cheap query for each, however many runs it has."""
    queue = ""
    while (queue := statements.rows(cursor, _NEXT_QUEUE, queue)[0][0]) is not None:
        yield queue


def _noted(
    cursor: Cursor,
    statements: LedgerStatements,
    left: Sequence[Any],
    since: dict[tuple[str, str], int],
    *,
    now_us: int,
    served_elsewhere: Collection[str],
) -> list[UnservedJob]:
    oldest: dict[str, tuple[int, str]] = {}
    for _, job, queue in left:
        oldest[job] = min(oldest.get(job, (now_us, queue)), (since[job, queue], queue))
    found = [
        UnservedJob(job, since_us, schedules=0, queue=queue if job in served_elsewhere else None)
        for job, (since_us, queue) in sorted(oldest.items())
    ]
    return [each for each in found if is_first_to_note(cursor, statements, each, now_us)]


def unpark(connection: LedgerConnection, served: Served) -> int:
    """Queue up to `BATCH` parked runs that a living node can take now; return how many."""
    statements = statements_for(connection)
    pairs = [row for row in connection.read(lambda cursor: statements.rows(cursor, _PARKED)) if served.has(*row)]
    return next((count for job, queue in pairs if (count := _unpark(connection, statements, job, queue))), 0)


def unpark_for_older(connection: LedgerConnection, *, node: str) -> int:
    """Queue all parked runs if no other living node knows that state; return how many.

    Does nothing without a row of an older node. Otherwise all runs that were parked over months would be queued
    whenever the last node restarts.
    """
    statements = statements_for(connection)
    others = connection.read(lambda cursor: statements.rows(cursor, _NODES, node))
    older = [is_living for version, is_living in others if known_by(version) < _KNOWN_SINCE]
    newer = [is_living for version, is_living in others if known_by(version) >= _KNOWN_SINCE]
    if not older or any(newer):
        return 0
    count = 0
    for job, queue in connection.read(lambda cursor: statements.rows(cursor, _PARKED)):
        while queued := _unpark(connection, statements, job, queue):
            count += queued
    return count


def _unpark(connection: LedgerConnection, statements: LedgerStatements, job: str, queue: str) -> int:
    def work(cursor: Cursor) -> int:
        ids = [row[0] for row in statements.rows(cursor, f"{_FIND_PARKED} ORDER BY r.id LIMIT {BATCH}", job, queue)]
        return statements.change(cursor, _UNPARK, statements.ints(ids)) if ids else 0

    return connection.write(work)
