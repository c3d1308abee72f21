"""Serving: which jobs the living nodes can run, and which schedules none of them can run.

A schedule is planned only while a living node has its job and takes runs from its queue. A planner that finds a due
schedule without such a node records since when there is none (`schedule.no_node_since`), and changes nothing else:
`planned_through` stays. When a node that has the job is alive again, this mark is removed, and the misfire policy of
the job decides about the due times that have passed, as after a downtime of all nodes.

A draining node takes no more runs, so it does not count.

**Not promised.** That a dead node stops counting at once: it counts until its death is noted. Nodes of versions that do
not know this column still plan schedules that no node serves.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from fencepost.core.noted import Noted
from fencepost.core.tick import spelled_us
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, Match, listed, statements_for

_DEFAULT_QUEUE = "default"
_BATCH = 500  # schedules per statement


class Served:
    """The jobs that a set of nodes can run. `kinds` has each combination of jobs and queues once."""

    __slots__ = ("kinds",)

    def __init__(self, kinds: Iterable[tuple[Collection[str], Collection[str]]]) -> None:
        self.kinds = tuple((frozenset(jobs), frozenset(queues)) for jobs, queues in kinds)

    def has(self, job: str, queue: str) -> bool:
        """Whether one of the nodes has this job and takes runs from this queue."""
        return any(job in jobs and queue in queues for jobs, queues in self.kinds)

    def takes_from(self, queue: str) -> bool:
        """Whether one of the nodes takes runs from this queue, of any job."""
        return any(queue in queues for _, queues in self.kinds)


class Unserved(NamedTuple):
    """A schedule that no living node can run; `queue` is the queue of its job."""

    schedule: str
    job: str
    queue: str


def queue_of(policy: str) -> str:
    """Return the queue that a job's policy names, even if the policy was written by a newer version."""
    return _queue(policy)


@functools.lru_cache(maxsize=10_000)
def _queue(policy: str) -> str:
    try:
        return str(json.loads(policy).get("queue") or _DEFAULT_QUEUE)
    except (ValueError, AttributeError):
        return _DEFAULT_QUEUE


_SERVING = """
SELECT n.jobs, n.queues FROM {node} n WHERE n.left_at IS NULL AND n.dead_at IS NULL AND n.draining_at IS NULL
GROUP BY n.jobs, n.queues
"""


def served(connection: LedgerConnection) -> Served:
    """Return what the living nodes can run."""
    statements = statements_for(connection)
    return connection.read(lambda cursor: served_now(cursor, statements))


def served_now(cursor: Cursor, statements: LedgerStatements) -> Served:
    """Return the same, in the transaction of `cursor`."""
    return Served((json.loads(jobs), json.loads(queues)) for jobs, queues in statements.rows(cursor, _SERVING))


# -- schedules that no node serves

_ENDED = """
SELECT n.jobs, n.queues, max({greatest}(coalesce(n.draining_at, 0), coalesce(n.left_at, 0), coalesce(n.dead_at, 0)))
FROM {node} n WHERE n.left_at IS NOT NULL OR n.dead_at IS NOT NULL OR n.draining_at IS NOT NULL
GROUP BY n.jobs, n.queues
"""
_SEEN = "SELECT j.name, j.seen_at FROM {job} j WHERE {texts:j.name}"
_MARKED = "{rows:e name=text since=int}"


def note_unserved(cursor: Cursor, statements: LedgerStatements, unserved: Sequence[Unserved], *, now_us: int) -> None:
    """Record on schedules since when no node has them. The caller has locked their rows."""
    since = last_served_us(cursor, statements, {(each.job, each.queue) for each in unserved}, now_us=now_us)
    rows = listed([[each.schedule, since[each.job, each.queue]] for each in unserved])
    sets = {"no_node_since": "e.since"}
    statements.change(
        cursor, statements.update_from("schedule", source=_MARKED, on=Match("id", "name"), sets=sets), rows
    )


def last_served_us(
    cursor: Cursor, statements: LedgerStatements, pairs: Collection[tuple[str, str]], *, now_us: int
) -> dict[tuple[str, str], int]:
    """Return for each job and queue when the last node that had them ended.

    If there is no row of such a node any more, this is the last time at which a node with the job started.
    """
    ended = [
        (frozenset(json.loads(jobs)), frozenset(json.loads(queues)), at)
        for jobs, queues, at in _rows(cursor, statements)
    ]
    seen: dict[str, int] = dict(statements.rows(cursor, _SEEN, statements.texts(sorted({job for job, _ in pairs}))))
    return {
        (job, queue): max(
            (at for jobs, queues, at in ended if job in jobs and queue in queues), default=seen.get(job, now_us)
        )
        for job, queue in pairs
    }


def _rows(cursor: Cursor, statements: LedgerStatements) -> list[Any]:
    return statements.rows(cursor, _ENDED)


_WAITING = """
SELECT s.id, s.job, coalesce((SELECT j.policy FROM {job} j WHERE j.name = s.job), '') FROM {schedule} s
WHERE s.no_node_since IS NOT NULL AND s.id > %s ORDER BY s.id
"""
_BRING_BACK = "UPDATE {schedule} SET no_node_since = NULL WHERE {texts:id}"


def bring_back(connection: LedgerConnection, now_served: Served) -> int:
    """Let schedules whose job a living node has be planned again; return how many."""
    statements = statements_for(connection)
    after, count = "", 0
    while page := connection.read(lambda cursor, after=after: _page(cursor, statements, after)):  # type: ignore[misc]
        after = page[-1][0]
        ids = [schedule for schedule, job, policy in page if now_served.has(job, queue_of(policy))]
        if ids:
            count += connection.write(lambda cursor, ids=ids: _plannable(cursor, statements, ids))  # type: ignore[misc]
    return count


def _plannable(cursor: Cursor, statements: LedgerStatements, ids: Sequence[str]) -> int:
    """Remove the marks of these schedules, and notify nodes that have slept since a look did not show them."""
    statements.notify(cursor)
    return statements.change(cursor, _BRING_BACK, statements.texts(ids))


def _page(cursor: Cursor, statements: LedgerStatements, after: str) -> list[Any]:
    return statements.rows(cursor, f"{_WAITING} LIMIT {_BATCH}", after)


# -- the warning

WARNED_AFTER_US = 600_000_000  # a deploy takes minutes; a job without a node for longer is reported
NOTED_AT_ONCE = 100  # the planner waits for this, and each is a transaction
_MISSED = """
SELECT m.job, m.since, m.schedules FROM (
  SELECT s.job, min(s.no_node_since) AS since, count(*) AS schedules FROM {schedule} s
  WHERE s.no_node_since IS NOT NULL AND s.no_node_since + 0 <= %s AND s.deleted_at IS NULL AND s.paused_at IS NULL
  GROUP BY s.job) m
WHERE NOT EXISTS (SELECT 1 FROM {journal} j WHERE j.job = m.job AND j.what = %s AND j.at >= m.since)
ORDER BY m.since, m.job
"""
_LOCK_JOB = "SELECT j.name FROM {job} j WHERE j.name = %s{for_update}"
_IS_NOTED = "SELECT 1 FROM {journal} j WHERE j.job = %s AND j.what = %s AND j.at >= %s LIMIT 1"
_NOTE = "INSERT INTO {journal} (at, what, job, reason) VALUES (%s, %s, %s, %s)"


class UnservedJob(NamedTuple):
    """A job that no living node has had for a while, although it has due schedules or waiting runs.

    If `queue` is set, nodes have the job, but none takes runs from this queue, in which some of its runs wait.
    """

    job: str
    since_us: int
    schedules: int
    queue: str | None = None

    @property
    def reason(self) -> str:
        """What is not done, and how to fix it."""
        if self.queue is not None:
            return (
                f"no living node takes runs of job {self.job!r} from queue {self.queue!r} since "
                f"{spelled_us(self.since_us)}: runs that were requested when the job had that queue wait. Start a "
                f"node with --queues {self.queue}, or cancel them: fencepost runs --job {self.job} --state waiting"
            )
        what = "its schedule is not planned"
        if self.schedules != 1:
            what = f"its {self.schedules} schedules are not planned" if self.schedules else "its runs wait for one"
        return (
            f"since {spelled_us(self.since_us)} no living node has job {self.job!r} and takes runs from its queue: "
            f"{what}. Start a node that has both (fencepost nodes shows queues), or, if the job is gone: "
            f"fencepost jobs forget {self.job} --reason '…'"
        )


def note_missed(connection: LedgerConnection) -> list[UnservedJob]:
    """Note up to `NOTED_AT_ONCE` jobs with schedules that no node has served for ten minutes; return the new ones."""
    statements = statements_for(connection)
    now_us, found = connection.read(lambda cursor: _find_missed(cursor, statements))
    note = functools.partial(is_first_to_note, statements=statements, now_us=now_us)
    return [each for each in found if connection.write(functools.partial(note, missed=each))]


def _find_missed(cursor: Cursor, statements: LedgerStatements) -> tuple[int, list[UnservedJob]]:
    now_us, what = statements.now_us(cursor), str(Noted.JOB_WITHOUT_NODE)
    rows = statements.rows(cursor, f"{_MISSED} LIMIT {NOTED_AT_ONCE}", now_us - WARNED_AFTER_US, what)
    return now_us, [UnservedJob(*row) for row in rows]


def is_first_to_note(cursor: Cursor, statements: LedgerStatements, missed: UnservedJob, now_us: int) -> bool:
    """Note the job unless that is done already. Locks the row of the job, so concurrent calls wait for each other."""
    what = str(Noted.JOB_WITHOUT_NODE)
    statements.rows(cursor, _LOCK_JOB, missed.job)
    if statements.rows(cursor, _IS_NOTED, missed.job, what, missed.since_us):
        return False
    statements.change(cursor, _NOTE, now_us, what, missed.job, missed.reason)
    return True
