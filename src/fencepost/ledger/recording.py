"""Recording runs: the INSERT of every run that is requested.

**Promises.** One origin key, one run, however many requests there are at once. The second request gets the id of the
first run; if it asks for something else under the same key, it gets `DuplicateRequest`. This holds as long as the run
is kept.
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fencepost.core.runs import Requested
from fencepost.errors import DuplicateRequest, LedgerUnavailable
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.run_rows import HORIZON_US, PASSED_KINDS, insert_sql, passed
from fencepost.ledger.search_keys import index_recorded


class Enqueued(NamedTuple):
    """The run for a request, and whether this request created it."""

    run_id: int
    is_new: bool


def record(
    database: Database, cursor: Cursor, requests: Sequence[Requested], *, horizon_us: int = HORIZON_US
) -> list[Enqueued]:
    """Record `requests` in the transaction of `cursor`, in their order."""
    sql = _insert_sql(database, horizon_us)
    now = (database.dialect.runtime.wall_us(),) if database.dialect.spelling.now_us is None else ()
    rows = [(*passed(each), *now) for each in requests]
    ids = database.dialect.insert_all_new(cursor, sql, rows) if rows else []
    made = [
        Enqueued(run_id, is_new=True) if run_id is not None else _found(database, cursor, sql, (request, row))
        for request, row, run_id in zip(requests, rows, ids, strict=True)
    ]
    if any(request.search for request in requests):
        new_ids = [each.run_id if each.is_new else None for each in made]
        index_recorded(cursor, statements_for(database), requests, new_ids)
    return made


def _found(database: Database, cursor: Cursor, sql: str, asked: tuple[Requested, tuple[Any, ...]]) -> Enqueued:
    """Find the run that already has the origin key. If it was pruned in the meantime, insert the new one."""
    request, row = asked
    for _ in range(3):
        existing = _existing(database, cursor, request.origin_key or "")
        if existing is not None:
            run_id, job, params_hash = existing
            # The hash covers the job as well, by its first name: the job may have been renamed since.
            if params_hash != request.params_hash or (not params_hash and job != request.job):
                raise DuplicateRequest(request.origin_key or "", run_id=run_id, job=job)
            return Enqueued(run_id, is_new=False)
        new_id = database.dialect.insert_new(cursor, sql, row)
        if new_id is not None:
            return Enqueued(new_id, is_new=True)
    raise LedgerUnavailable(f"a run with the key {request.origin_key!r} comes and goes; nothing was enqueued: retry")


def _existing(database: Database, cursor: Cursor, origin_key: str) -> tuple[int, str, str] | None:
    dialect = database.dialect
    # A locking read on MySQL: in a caller's older snapshot, a plain SELECT would not show what blocks the INSERT.
    cursor.execute(
        f"SELECT id, job, params_hash FROM {database.tables.name('run')} WHERE origin_key = {dialect.mark}"
        f"{dialect.spelling.past_snapshot}",
        (origin_key,),
    )
    row: tuple[int, str, str] | None = cursor.fetchone()
    return row


def _insert_sql(database: Database, horizon_us: int) -> str:
    """Return the INSERT of one run. On SQLite the time is a parameter, too."""
    dialect = database.dialect
    marks = {"text": dialect.mark, "int": dialect.big(dialect.mark)}
    row = ", ".join(f"{marks[kind]} AS {name}" for name, kind in PASSED_KINDS.items())
    now = dialect.spelling.now_us or dialect.mark
    return insert_sql(database.tables.name("run"), rows=f"(SELECT {row}) e", now=now, horizon_us=horizon_us)
