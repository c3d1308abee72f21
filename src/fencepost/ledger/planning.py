"""Planning: due schedules become runs, and waiting runs whose time is near are queued.

**Promises.** A due time is planned once: its origin key is unique, and `planned_through` rises in the transaction that
records its run, and never falls. If a run cannot be recorded, that is an error and nothing changes. A schedule whose
job no living node has is not planned, and does not keep others from being planned (see `serving`). Two planners never
plan the same schedule at the same time, and neither waits for the other: a schedule that is locked is skipped. What
`decide` returns for a schedule is recorded as a whole or not at all.

**Not promised.** That the first node that searches plans a due time, or that due times are planned in order.

Every planner asks for schedules that are due within the horizon, a little ahead of time, and leaves later ones alone.
The cost depends only on how many schedules and runs are due, not on how many there are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from fencepost.core.runs import Requested
from fencepost.errors import LedgerRefused
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import ORIGIN_KEY, Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, Match, listed, rounded, statements_for
from fencepost.ledger.run_rows import PASSED_KINDS, insert_sql, passed
from fencepost.ledger.search_keys import index_planned
from fencepost.ledger.serving import Unserved, note_unserved, queue_of, served_now

# Sleeping nodes know of later due times from a look: what makes new ones (`ScheduleChange`, `serving`) notifies them.
_SOON_US = 1_000_000


class ScheduleRow(NamedTuple):
    """A due schedule as stored. `spec`, `params` and the `policy` of its job are JSON."""

    id: str
    job: str
    spec: str
    params: str
    origin: str
    generation: int
    planned_through: int
    next_due_at: int
    policy: str


class SchedulePlan(NamedTuple):
    """The plan for a due schedule: runs to record, how far it is planned then, and when to plan it next, if ever."""

    requested: Sequence[Requested]
    planned_through_us: int
    next_due_at_us: int | None


class Left(Enum):
    """Why a due schedule is not planned."""

    UNSERVED = "no living node has its job and takes runs from its queue"
    UNREADABLE = "this node cannot plan it; another one may"


class PlannedBatch(NamedTuple):
    """The result of planning. `runs` counts those recorded or queued; `more` means that more may be due.

    `has_served` means that a living node serves a schedule that `decide` considered unserved.
    """

    now_us: int
    runs: int
    next_due_at_us: int | None
    more: bool
    has_served: bool = False
    through: tuple[tuple[str, int], ...] = ()  # schedule ids, and how far each is planned now
    unrun: tuple[tuple[str, str], ...] = ()  # due times that were recorded without running: jobs, and the state of each


class Decide(Protocol):
    """Decides about a due schedule. Pure."""

    def __call__(self, now_us: int, row: ScheduleRow, /) -> SchedulePlan | Left: ...


def plan(
    connection: LedgerConnection, *, horizon_us: int, limit: int, decide: Decide, without: Collection[str] = ()
) -> PlannedBatch:
    """Plan up to `limit` schedules that are due within the horizon, and queue up to `limit` runs whose time is near.

    `without` are the ids of schedules that this node does not plan.
    """
    statements = statements_for(connection)
    limit = rounded(limit)

    def work(cursor: Cursor) -> PlannedBatch:
        now_us = statements.now_us(cursor)
        due = _due(cursor, statements, now_us + horizon_us, limit, without)
        decisions = [(row, decide(now_us, row)) for row in due]
        plans = [(row, decision) for row, decision in decisions if isinstance(decision, SchedulePlan)]
        runs = _record(cursor, statements, plans, now_us=now_us, horizon_us=horizon_us)
        unserved = [row for row, decision in decisions if decision is Left.UNSERVED]
        has_served = bool(unserved) and _set_aside(cursor, statements, unserved, now_us=now_us)
        queued = queue_near(cursor, statements, until_us=now_us + horizon_us, limit=limit)
        left = [row.id for row, decision in decisions if decision is Left.UNREADABLE]
        next_due = statements.rows(cursor, _NEXT_DUE, statements.texts([*without, *left]))
        is_full = len(due) >= limit or queued >= limit
        through = tuple((row.id, plan.planned_through_us) for row, plan in plans)
        unrun = tuple((each.job, each.state) for _, plan in plans for each in plan.requested if each.state != "queued")
        next_due_at = next_due[0][0] if next_due else None
        return PlannedBatch(now_us, runs + queued, next_due_at, is_full, has_served, through, unrun)

    return connection.write(work)


# The conditions match those of the partial index of due schedules that have a node.
_DUE = """
SELECT s.id, s.job, s.spec, s.params, s.origin, s.generation, s.planned_through, s.next_due_at
FROM {schedule} s{ready} WHERE s.next_due_at <= %s AND s.no_node_since IS NULL AND NOT ({texts:s.id})
ORDER BY s.next_due_at
"""
_POLICIES = "SELECT j.name, j.policy FROM {job} j WHERE {texts:j.name}"
_NEXT_DUE = """
SELECT s.next_due_at FROM {schedule} s{ready}
WHERE s.next_due_at IS NOT NULL AND s.no_node_since IS NULL AND NOT ({texts:s.id}) ORDER BY s.next_due_at LIMIT 1
"""
_MOVED = "{rows:e name=text planned_through=int next_due_at=int}"


def _due(
    cursor: Cursor, statements: LedgerStatements, until_us: int, limit: int, without: Collection[str]
) -> list[ScheduleRow]:
    rows = statements.rows(cursor, f"{_DUE} LIMIT {limit}{{skip_locked}}", until_us, statements.texts(without))
    if not rows:
        return []
    policies = dict(statements.rows(cursor, _POLICIES, statements.texts(sorted({row[1] for row in rows}))))
    return [ScheduleRow._make((*row, policies.get(row[1], "{}"))) for row in rows]


def _set_aside(cursor: Cursor, statements: LedgerStatements, rows: Sequence[ScheduleRow], *, now_us: int) -> bool:
    """Mark the schedules that no living node serves; return whether any of them is served after all."""
    served = served_now(cursor, statements)
    found = [Unserved(row.id, row.job, queue_of(row.policy)) for row in rows]
    unserved = [each for each in found if not served.has(each.job, each.queue)]
    if unserved:
        note_unserved(cursor, statements, unserved, now_us=now_us)
    return len(unserved) < len(found)


def _record(
    cursor: Cursor,
    statements: LedgerStatements,
    plans: Sequence[tuple[ScheduleRow, SchedulePlan]],
    *,
    now_us: int,
    horizon_us: int,
) -> int:
    """Insert the runs of all plans, and update their schedules; return the number of runs."""
    requested = [request for _, plan in plans for request in plan.requested]
    if requested:
        insert_runs(cursor, statements, requested, now_us=now_us, horizon_us=horizon_us)
    if plans:
        moved = listed([[row.id, plan.planned_through_us, plan.next_due_at_us] for row, plan in plans])
        sets = {
            "planned_through": f"{statements.greatest}(r.planned_through, e.planned_through)",
            "next_due_at": "e.next_due_at",
        }
        statements.change(
            cursor, statements.update_from("schedule", source=_MOVED, on=Match("id", "name"), sets=sets), moved
        )
    if any(_is_soon(request, now_us) for request in requested):
        statements.notify(cursor)
    return len(requested)


def _is_soon(request: Requested, now_us: int) -> bool:
    available_at = request.available_at_us
    return request.state == "queued" and (available_at is None or available_at <= now_us + _SOON_US)


# -- runs

_ROWS = f"{{rows:e {' '.join(f'{name}={kind}' for name, kind in PASSED_KINDS.items())}}}"


def insert_runs(
    cursor: Cursor, statements: LedgerStatements, requested: Sequence[Requested], *, now_us: int, horizon_us: int
) -> None:
    """Insert runs, except those whose origin key exists. Runs beyond the horizon wait for their time.

    Raises `LedgerRefused` if a run was not inserted although its origin key does not exist: it would be lost.
    """
    insert = insert_sql("{run}", rows=_ROWS, now=statements.dialect.big("%s"), horizon_us=horizon_us)
    rows = listed([passed(request) for request in requested])
    count = statements.change(
        cursor, insert + statements.dialect.unless_there(statements.fields["run"], *ORIGIN_KEY), rows, now_us
    )
    if count < len(requested) or statements.dialect.counts_left_out:
        _require_all(cursor, statements, requested, count)
    if any(request.search for request in requested):
        index_planned(cursor, statements, requested)


_THERE = "SELECT count(*) FROM {run} r WHERE {texts:r.origin_key}"


def _require_all(cursor: Cursor, statements: LedgerStatements, requested: Sequence[Requested], count: int) -> None:
    keys = {request.origin_key for request in requested if request.origin_key is not None}
    without_key = sum(request.origin_key is None for request in requested)
    there = statements.rows(cursor, _THERE, statements.texts(sorted(keys)))[0][0] if keys else 0
    if there < len(keys) or count < without_key:
        raise LedgerRefused(
            f"{len(keys) - there} of {len(requested)} runs were not recorded, though no other run has their key: "
            f"nothing was planned. Check the ids of {statements.fields['run']}"
        )


_NEAR = """
SELECT r.id FROM {run} r WHERE r.state = 'waiting' AND r.waits_for = 'time' AND r.available_at <= %s
ORDER BY r.available_at
"""
_QUEUE = "UPDATE {run} SET state = 'queued', waits_for = NULL WHERE {ints:id}"


def queue_near(cursor: Cursor, statements: LedgerStatements, *, until_us: int, limit: int) -> int:
    """Queue runs that wait for a time that is near now; return how many."""
    near = [row[0] for row in statements.rows(cursor, f"{_NEAR} LIMIT {limit}{{skip_locked}}", until_us)]
    return statements.change(cursor, _QUEUE, statements.ints(near)) if near else 0
