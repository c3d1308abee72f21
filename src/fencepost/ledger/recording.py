"""Recording runs: the one INSERT by which every run that was asked for comes into the ledger.

**Promises.** One origin key, one run, however many ask at once: the second is told the first one's id, or, if it asks
for something else under the same key, gets `DuplicateRequest`. That holds as long as the run is kept.
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fencepost.core.runs import Requested
from fencepost.errors import DuplicateRequest, LedgerUnavailable
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.hot import clean

HORIZON_US = 2_000_000  # what is to run later than this waits for its time first


class Enqueued(NamedTuple):
    """The run that stands for a request, and whether this request made it."""

    run_id: int
    is_new: bool


def record(
    database: Database, cursor: Cursor, requests: Sequence[Requested], *, horizon_us: int = HORIZON_US
) -> list[Enqueued]:
    """Record each of `requests`, in the transaction of `cursor`, in their order."""
    sql = _insert_sql(database)
    now = (database.dialect.runtime.wall_us(),) if database.dialect.name == "sqlite" else ()
    rows = [(*_parameters(each, horizon_us), *now) for each in requests]
    ids = database.dialect.insert_all_new(cursor, sql, rows) if rows else []
    return [
        Enqueued(run_id, is_new=True) if run_id is not None else _found(database, cursor, sql, (request, row))
        for request, row, run_id in zip(requests, rows, ids, strict=True)
    ]


def _found(database: Database, cursor: Cursor, sql: str, asked: tuple[Requested, tuple[Any, ...]]) -> Enqueued:
    """Find the run that has the key already. If it was pruned just now, the key is free."""
    request, row = asked
    for _ in range(3):
        existing = _existing(database, cursor, request.origin_key or "")
        if existing is not None:
            run_id, job, params_hash = existing
            if (job, params_hash) != (request.job, request.params_hash):
                raise DuplicateRequest(request.origin_key or "", run_id=run_id, job=job)
            return Enqueued(run_id, is_new=False)
        new_id = database.dialect.insert_new(cursor, sql, row)
        if new_id is not None:
            return Enqueued(new_id, is_new=True)
    raise LedgerUnavailable(f"{request.origin_key!r} is there and not there by turns; nothing was enqueued")


def _existing(database: Database, cursor: Cursor, origin_key: str) -> tuple[int, str, str] | None:
    dialect = database.dialect
    # Locked on MySQL: within a caller's older snapshot a plain look would not show what the INSERT has met.
    share = dialect.share if dialect.name == "mysql" else ""
    cursor.execute(
        f"SELECT id, job, params_hash FROM {database.tables.name('run')} WHERE origin_key = {dialect.mark}{share}",
        (origin_key,),
    )
    row: tuple[int, str, str] | None = cursor.fetchone()
    return row


_GIVEN = (
    "job, type, params, params_hash, origin_key, schedule, first_due_at, due_at, ticks, window_start, window_end, "
    "priority, queue, exclusive_key, requested_by, reason, retry_of, generation, why"
)
_NUMBERS = frozenset(("first_due_at", "due_at", "window_start", "window_end", "retry_of", "generation"))


def _insert_sql(database: Database) -> str:
    """Return the INSERT. Time is read once for the whole row; the WHERE lets SQLite understand what may follow."""
    dialect = database.dialect
    mark, big = dialect.mark, dialect.big(dialect.mark)
    given = ", ".join(big if name in _NUMBERS else mark for name in _GIVEN.split(", "))
    now = mark if dialect.name == "sqlite" else dialect.now_sql
    later = f"{mark} = 'queued' AND {big} > t.now + {big}"
    return (
        f"INSERT INTO {database.tables.name('run')} ({_GIVEN}, available_at, created_at, state, waits_for, ended_at, "
        "sla_at, attempts, failures, crashes, token) "
        f"SELECT {given}, COALESCE({big}, t.now), t.now, CASE WHEN {later} THEN 'waiting' ELSE {mark} END, "
        f"CASE WHEN {later} THEN 'time' END, CASE WHEN {mark} <> 'queued' THEN t.now END, "
        f"COALESCE({big}, t.now) + {big}, 0, 0, 0, 0 FROM (SELECT {now} AS now) t WHERE 1 = 1"
    )


def _parameters(request: Requested, horizon_us: int) -> tuple[Any, ...]:
    later = (request.state, request.available_at_us, horizon_us)
    return (
        request.job,
        request.type,
        clean(request.params),
        request.params_hash,
        request.origin_key,
        request.schedule,
        request.first_due_at_us,
        request.due_at_us,
        request.ticks,
        request.window_start_us,
        request.window_end_us,
        request.priority,
        request.queue,
        request.exclusive_key,
        clean(request.requested_by),
        clean(request.reason),
        request.retry_of,
        request.generation,
        clean(request.why),
        request.available_at_us,
        *later,
        request.state,
        *later,
        request.state,
        request.available_at_us if request.due_at_us is None else request.due_at_us,
        request.sla_us,
    )
