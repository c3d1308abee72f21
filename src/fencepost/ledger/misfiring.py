"""Late ticks that were planned and then not claimed. A node decides about them before its first claim.

Normally, late ticks are decided about when they are planned. But a tick is planned a little ahead, and then all nodes
that have its job may stop; and nodes of an older version also plan ticks that no node can run. Such ticks may still be
queued a day later.

A tick is late here only if no node that could run it was alive when it was due. A tick that waits because nodes are
busy is never late. Late ticks follow the misfire policy of the job, as at planning. With *once*, consecutive late ticks
of a schedule become one run with the window of all of them: the newest stays, and the others are removed, as they never
started. With *all*, the newest ones up to the cap stay. With *skip*, and beyond the cap, they are recorded as misfired.

**Promises.** Each batch of a schedule is decided in one transaction, with the schedule's row locked. Only ticks that
never started are changed. Runs that were requested (a back-fill, a retry) are never late, and a tick that its
schedule's jitter delays is late only after that delay. A tick that another node claims at the same moment is left to
that node.
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from fencepost.core.misfire import Misfire
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, statements_for

BATCH = 2000  # runs per transaction: short locks, and a year of a minutely job in a few hundred steps
_FOREVER = 1 << 62  # after every instant: the end of a node that lives, and where reading newest first begins


class Lives(NamedTuple):
    """When nodes that take runs from one queue were alive: from, to, and their jobs."""

    spans: tuple[tuple[int, int, frozenset[str]], ...]

    def had_node(self, names: frozenset[str], from_us: int, to_us: int) -> bool:
        """Whether a node that has a job of one of these names was alive at some moment from `from_us` to `to_us`."""
        return any(began <= to_us and ended >= from_us and names & jobs for began, ended, jobs in self.spans)


class _Tick(NamedTuple):
    id: int
    first_due_at: int
    due_at: int
    ticks: int
    window_start: int | None
    available_at: int
    queue: str
    params_hash: str


class MisfireCounts(NamedTuple):
    """How many late ticks were recorded as misfired, and how many were merged into a later one."""

    misfired: int = 0
    merged: int = 0

    def plus(self, other: MisfireCounts) -> MisfireCounts:
        return MisfireCounts(self.misfired + other.misfired, self.merged + other.merged)


_LIVES = """
SELECT n.jobs, n.queues, n.started_at, n.draining_at, n.left_at, n.dead_at FROM {node} n WHERE n.id <> %s
"""
_NOT_BEGUN = """
  AND r.attempts = 0 AND r.retry_of IS NULL AND r.origin_key LIKE 'tick:%%' AND r.available_at < %s
"""
# The job is hidden from the query planner: few runs are queued, but a job may have many runs in history.
_CONCERNED = f"""
SELECT r.schedule, r.job FROM {{run}} r
WHERE r.state = 'queued' AND {{texts:r.queue}} AND {{texts:coalesce(r.job, '')}} {_NOT_BEGUN} GROUP BY r.schedule, r.job
"""
_CONCERNED_WAITING = f"""
SELECT r.schedule, r.job FROM {{run}} r
WHERE r.state = 'waiting' AND r.waits_for = <what> AND {{texts:coalesce(r.job, '')}} {_NOT_BEGUN}
GROUP BY r.schedule, r.job
"""
_LOCK_SCHEDULE = "SELECT s.id FROM {schedule} s WHERE s.id = %s{for_update}"
_TICKS = f"""
SELECT r.id, r.first_due_at, r.due_at, r.ticks, r.window_start, r.available_at, r.queue, r.params_hash FROM {{run}} r
WHERE r.schedule = %s AND r.due_at <compared> %s AND {{was:r.job}} = %s
  AND ({{was:r.state}} = 'queued' OR {{was:r.state}} = 'waiting'
    AND ({{was:r.waits_for}} = 'time' OR {{was:r.waits_for}} = 'node')) {_NOT_BEGUN}
"""
_OTHERS = """
SELECT r.due_at FROM {run} r
WHERE r.schedule = %s AND r.due_at BETWEEN %s AND %s AND r.origin_key LIKE 'tick:%%' AND NOT ({ints:r.id})
"""
_MISFIRE = "UPDATE {run} SET state = 'misfired', waits_for = NULL, ended_at = %s, why = %s WHERE {ints:id}"
_WIDEN = "UPDATE {run} SET first_due_at = %s, window_start = %s, ticks = %s, why = %s WHERE id = %s"
_REMOVE = "DELETE FROM {run} WHERE {ints:id}"
_REMOVE_KEYS = "DELETE FROM {run_search} WHERE {ints:run_id}"


def settle_late(
    connection: LedgerConnection,
    *,
    node: str,
    queues: Collection[str],
    rules: Mapping[str, Misfire],
    formers: Mapping[str, Collection[str]] = MappingProxyType({}),
    on_misfired: Callable[[str, int], None] = lambda _job, _count: None,
) -> MisfireCounts:
    """Decide about ticks of these jobs, in these queues, that came due while no other node could run them.

    `node` is the calling node, which has not claimed anything yet. `rules` has the misfire policy of each of its jobs,
    and `formers` the former names of renamed jobs. `on_misfired` is called with a job and how many of its ticks
    misfired.
    """
    statements = statements_for(connection)
    if not rules:
        return MisfireCounts()
    now_us, concerned = connection.read(lambda cursor: _concerned(cursor, statements, queues, rules))
    if not concerned:
        return MisfireCounts()
    lives = connection.read(lambda cursor: _lives(cursor, statements, node))
    settled = MisfireCounts()
    for schedule, job in concerned:
        late = _Late(connection, schedule, job, rule=rules[job], lives=lives, now_us=now_us)
        late.names |= frozenset(formers.get(job, ()))
        done = late.settle()
        if done.misfired:
            on_misfired(job, done.misfired)
        settled = settled.plus(done)
    return settled


def _concerned(
    cursor: Cursor, statements: LedgerStatements, queues: Collection[str], rules: Mapping[str, Misfire]
) -> tuple[int, list[tuple[str, str]]]:
    """Return the time, and the schedules, each with its job, that have ticks that may be late."""
    now_us = statements.now_us(cursor)
    before_us = now_us - min(rule.grace_us for rule in rules.values())
    names = statements.texts(sorted(rules))
    rows = statements.rows(cursor, _CONCERNED, statements.texts(sorted(queues)), names, before_us)
    for what in ("'time'", "'node'"):  # literals that match the partial indexes
        rows += statements.rows(cursor, _CONCERNED_WAITING.replace("<what>", what), names, before_us)
    return now_us, sorted({(schedule, job) for schedule, job in rows if schedule is not None})


def _lives(cursor: Cursor, statements: LedgerStatements, node: str) -> dict[str, Lives]:
    """Return, by queue, when other nodes that take runs from it were alive."""
    spans: dict[str, list[tuple[int, int, frozenset[str]]]] = {}
    for jobs, queues, began, *ends in statements.rows(cursor, _LIVES, node):
        span = (began, min((end for end in ends if end is not None), default=_FOREVER), frozenset(json.loads(jobs)))
        for queue in json.loads(queues):
            spans.setdefault(queue, []).append(span)
    return {queue: Lives(tuple(found)) for queue, found in spans.items()}


class _Late:
    """The late ticks of one schedule."""

    def __init__(
        self,
        connection: LedgerConnection,
        schedule: str,
        job: str,
        *,
        rule: Misfire,
        lives: Mapping[str, Lives],
        now_us: int,
    ) -> None:
        self._connection = connection
        self._statements = statements_for(connection)
        self._schedule = schedule
        self._job = job
        self._rule = rule
        self._lives = lives
        self._now_us = now_us
        self._kept = 0
        self.names = frozenset({job})  # all names under which nodes may have had the job

    def settle(self) -> MisfireCounts:
        """Decide batch by batch: oldest first, but newest first if the policy keeps the newest ones."""
        is_newest_first = self._rule.kept > 0
        settled, mark = MisfireCounts(), _FOREVER if is_newest_first else 0
        while True:
            count, mark, done = self._connection.write(lambda cursor, mark=mark: self._batch(cursor, mark))  # type: ignore[misc]
            settled = settled.plus(done)
            if count < BATCH:
                return settled

    def _batch(self, cursor: Cursor, mark: int) -> tuple[int, int, MisfireCounts]:
        """Decide about one batch; return its size, where the next one begins, and the counts."""
        statements, merges = self._statements, self._rule.others == "run"
        statements.rows(cursor, _LOCK_SCHEDULE, self._schedule)
        # When ticks are merged, a batch begins with the last tick of the batch before.
        comparison, order = ("<", "DESC") if self._rule.kept else (">=" if merges else ">", "")
        sql = f"{_TICKS.replace('<compared>', comparison)} ORDER BY r.due_at {order} LIMIT {BATCH}{{skip_locked}}"
        asked = (self._schedule, mark, self._job, self._now_us - self._rule.grace_us)
        found = [_Tick(*row) for row in statements.rows(cursor, sql, *asked)]
        if not found:
            return 0, mark, MisfireCounts()
        late = [tick for tick in found if self._is_late(tick)]
        others = self._beyond_kept(late)
        done = self._merge(cursor, others) if merges else self._misfire(cursor, others)
        return len(found), found[-1].due_at, done

    def _is_late(self, tick: _Tick) -> bool:
        lives = self._lives.get(tick.queue)
        until_us = tick.available_at + self._rule.grace_us
        return lives is None or not lives.had_node(self.names, tick.available_at, until_us)

    def _beyond_kept(self, late: Sequence[_Tick]) -> Sequence[_Tick]:
        """Return the ticks that get no run of their own: with *all* those beyond the cap, otherwise all of them."""
        stay = max(self._rule.kept - self._kept, 0)
        self._kept += min(stay, len(late))
        return late[stay:]

    def _misfire(self, cursor: Cursor, late: Sequence[_Tick]) -> MisfireCounts:
        if late:
            why = f"no node started it in time; misfire is {self._rule}"
            self._statements.change(
                cursor, _MISFIRE, self._now_us, why, self._statements.ints([tick.id for tick in late])
            )
        return MisfireCounts(misfired=len(late))

    def _merge(self, cursor: Cursor, late: Sequence[_Tick]) -> MisfireCounts:
        if len(late) < 2:
            return MisfireCounts()
        statements, merged = self._statements, 0
        ids = statements.ints([tick.id for tick in late])
        between = [
            row[0] for row in statements.rows(cursor, _OTHERS, self._schedule, late[0].due_at, late[-1].due_at, ids)
        ]
        for *others, newest in _stretches(late, between):
            if not others:
                continue
            ticks = newest.ticks + sum(each.ticks for each in others)
            why = f"it makes up for {ticks} due times that passed while no node had the job; misfire is {self._rule}"
            values = (others[0].first_due_at, others[0].window_start, ticks, why, newest.id)
            statements.change(cursor, _WIDEN, *values)
            gone = statements.ints([each.id for each in others])
            statements.change(cursor, _REMOVE, gone)
            statements.change(cursor, _REMOVE_KEYS, gone)
            merged += len(others)
        return MisfireCounts(merged=merged)


def _stretches(late: Sequence[_Tick], between: Sequence[int]) -> Iterator[list[_Tick]]:
    """Split ticks where another tick of the schedule is between them, or where their parameters differ."""
    others = sorted(between)
    for _, stretch in groupby(late, key=lambda tick: (bisect_left(others, tick.due_at), tick.params_hash)):
        yield list(stretch)
