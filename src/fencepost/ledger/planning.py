"""Planning: due schedules become runs, and waiting runs whose time is near are queued.

**Promises.** A due time is planned once: its origin key is unique, and `planned_through` moves, upwards only, in the
transaction that records its run. Two planners never work at one schedule at a time, and none waits for the other: a
schedule that is locked is passed over. What `decide` wants is recorded all or not at all.

**Not promised.** That a due time is planned by the node that looks first, or in the order of due times.

Every planner asks for what is due within the horizon, a little ahead of time; what is further off stays where it is.
The cost does not depend on how many schedules or runs there are, only on how many are due.
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from fencepost.core.runs import Requested
from fencepost.ledger.desk import Desk
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.hot import Hot, Match, hot_words, listed, rounded

# Those who sleep look again within this time by themselves; for what is due later nobody needs to be woken.
_SOON_US = 1_000_000


class ScheduleRow(NamedTuple):
    """A schedule that is due, as it is kept. `spec`, `params` and its job's `policy` are JSON."""

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
    """What becomes of a due schedule: runs to record, how far it is planned now, and when to plan it next, if ever."""

    requested: Sequence[Requested]
    planned_through_us: int
    next_due_at_us: int | None


class Planned(NamedTuple):
    """What was planned. `runs` were recorded or queued; `more`: there may be more that is due."""

    now_us: int
    runs: int
    next_due_at_us: int | None
    more: bool


class Decide(Protocol):
    """Decides what becomes of a due schedule. Pure."""

    def __call__(self, now_us: int, row: ScheduleRow, /) -> SchedulePlan: ...


def plan(desk: Desk, *, horizon_us: int, limit: int, decide: Decide) -> Planned:
    """Plan up to `limit` schedules that are due within the horizon, and queue as many runs whose time is near."""
    hot = hot_words(desk)
    limit = rounded(limit)

    def work(cursor: Cursor) -> Planned:
        now_us = hot.now_us(cursor)
        due = _due(cursor, hot, now_us + horizon_us, limit)
        plans = [(row, decide(now_us, row)) for row in due]
        runs = _record(cursor, hot, plans, now_us=now_us, horizon_us=horizon_us)
        queued = queue_near(cursor, hot, until_us=now_us + horizon_us, limit=limit)
        next_due = hot.rows(cursor, _NEXT_DUE)
        is_full = len(due) >= limit or queued >= limit
        return Planned(now_us, runs + queued, next_due[0][0] if next_due else None, is_full)

    return desk.write(work)


_DUE = """
SELECT s.id, s.job, s.spec, s.params, s.origin, s.generation, s.planned_through, s.next_due_at FROM {schedule} s
WHERE s.next_due_at <= %s ORDER BY s.next_due_at
"""
_POLICIES = "SELECT j.name, j.policy FROM {job} j WHERE {texts:j.name}"
_NEXT_DUE = """
SELECT s.next_due_at FROM {schedule} s WHERE s.next_due_at IS NOT NULL ORDER BY s.next_due_at LIMIT 1
"""
_MOVED = "{rows:e name=text planned_through=int next_due_at=int}"


def _due(cursor: Cursor, hot: Hot, until_us: int, limit: int) -> list[ScheduleRow]:
    rows = hot.rows(cursor, f"{_DUE} LIMIT {limit}{{skip_locked}}", until_us)
    if not rows:
        return []
    policies = dict(hot.rows(cursor, _POLICIES, hot.texts(sorted({row[1] for row in rows}))))
    return [ScheduleRow._make((*row, policies.get(row[1], "{}"))) for row in rows]


def _record(
    cursor: Cursor, hot: Hot, plans: Sequence[tuple[ScheduleRow, SchedulePlan]], *, now_us: int, horizon_us: int
) -> int:
    """Record what was decided about each schedule, and move the schedules on; return how many runs that were."""
    requested = [request for _, plan in plans for request in plan.requested]
    if requested:
        insert_runs(cursor, hot, requested, now_us=now_us, horizon_us=horizon_us)
    if plans:
        moved = listed([[row.id, plan.planned_through_us, plan.next_due_at_us] for row, plan in plans])
        sets = {
            "planned_through": f"{hot.greatest}(r.planned_through, e.planned_through)",
            "next_due_at": "e.next_due_at",
        }
        hot.change(cursor, hot.update_from("schedule", source=_MOVED, on=Match("id", "name"), sets=sets), moved)
    if any(_is_soon(request, now_us) for request in requested):
        hot.notify(cursor)
    return len(requested)


def _is_soon(request: Requested, now_us: int) -> bool:
    available_at = request.available_at_us
    return request.state == "queued" and (available_at is None or available_at <= now_us + _SOON_US)


# -- runs

_RUN = {
    "job": "text",
    "type": "text",
    "state": "text",
    "waits_for": "text",
    "schedule": "text",
    "origin_key": "text",
    "first_due_at": "int",
    "due_at": "int",
    "ticks": "int",
    "window_start": "int",
    "window_end": "int",
    "params": "text",
    "params_hash": "text",
    "requested_by": "text",
    "reason": "text",
    "priority": "int",
    "queue": "text",
    "exclusive_key": "text",
    "created_at": "int",
    "available_at": "int",
    "ended_at": "int",
    "sla_at": "int",
    "retry_of": "int",
    "generation": "int",
    "why": "text",
}
_INSERT = (
    f"INSERT INTO {{run}} ({', '.join(_RUN)}, attempts, failures, crashes, token) "
    f"SELECT {', '.join(f'e.{name}' for name in _RUN)}, 0, 0, 0, 0 "
    f"FROM {{rows:e {' '.join(f'{name}={kind}' for name, kind in _RUN.items())}}} WHERE true"
)


def insert_runs(cursor: Cursor, hot: Hot, requested: Sequence[Requested], *, now_us: int, horizon_us: int) -> None:
    """Record runs, leaving out those whose origin key is there. Those beyond the horizon wait for their time."""
    rows = listed([_row(request, now_us, now_us + horizon_us) for request in requested])
    hot.change(cursor, _INSERT + hot.dialect.unless_there(hot.fields["run"], "id"), rows)


def _row(request: Requested, now_us: int, until_us: int) -> tuple[Any, ...]:
    available_at = now_us if request.available_at_us is None else request.available_at_us
    is_far = request.state == "queued" and available_at > until_us
    is_over = request.state != "queued"
    due_at = available_at if request.due_at_us is None else request.due_at_us
    return (
        request.job,
        request.type,
        "waiting" if is_far else request.state,
        "time" if is_far else None,
        request.schedule,
        request.origin_key,
        request.first_due_at_us,
        request.due_at_us,
        request.ticks,
        request.window_start_us,
        request.window_end_us,
        request.params,
        request.params_hash,
        request.requested_by,
        request.reason,
        request.priority,
        request.queue,
        request.exclusive_key,
        now_us,
        available_at,
        now_us if is_over else None,
        None if request.sla_us is None else due_at + request.sla_us,
        request.retry_of,
        request.generation,
        request.why,
    )


_NEAR = """
SELECT r.id FROM {run} r WHERE r.state = 'waiting' AND r.waits_for = 'time' AND r.available_at <= %s
ORDER BY r.available_at
"""
_QUEUE = "UPDATE {run} SET state = 'queued', waits_for = NULL WHERE {ints:id}"


def queue_near(cursor: Cursor, hot: Hot, *, until_us: int, limit: int) -> int:
    """Queue runs that have waited for a time which is near now; return how many."""
    near = [row[0] for row in hot.rows(cursor, f"{_NEAR} LIMIT {limit}{{skip_locked}}", until_us)]
    return hot.change(cursor, _QUEUE, hot.ints(near)) if near else 0
