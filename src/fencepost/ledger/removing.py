"""Removing what no living node has any more: a schedule that was declared in code, or a job with its pending runs.

A node stores the jobs and schedules of its code when it starts. So what a living node has cannot be removed: it would
come back. A removed schedule leaves a tombstone (`planned_through` never falls), and a job leaves its history (its
ended runs, until their retention is over). If the name comes back later, it starts over, without a backlog.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import delete as delete_from

from fencepost.core.noted import Noted
from fencepost.errors import LedgerRefused, NoSuchJob
from fencepost.ledger import schedules
from fencepost.ledger.accounts import forget_permissions
from fencepost.ledger.auditing import next_number
from fencepost.ledger.begun_renames import begun_within, refuse_begun
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, said, statements_for
from fencepost.ledger.figures import forget_figures
from fencepost.ledger.jobs import job as known_job
from fencepost.ledger.journal import About, begin, note
from fencepost.ledger.nodes import living_nodes
from fencepost.ledger.schedule_rows import CODE, StoredSchedule

_BATCH = 2000  # runs per transaction: short locks


class Forgotten(NamedTuple):
    """What was removed with a job: the number of schedules deleted, and of runs cancelled."""

    schedules: int
    runs: int


_OPEN_TICKS = """
SELECT r.id FROM {run} r WHERE r.schedule = %s AND r.attempts = 0 AND r.origin_key LIKE 'tick:%%'
  AND ({was:r.state} = 'queued' OR {was:r.state} = 'waiting')
"""
_SKIP = """
UPDATE {run} SET state = 'skipped', waits_for = NULL, ended_at = %s, why = 'schedule deleted'
WHERE {ints:id} AND attempts = 0 AND ({was:state} = 'queued' OR {was:state} = 'waiting')
"""
_OPEN = """
SELECT r.id FROM {run} r WHERE r.job = %s AND ({was:r.state} = 'queued' OR {was:r.state} = 'waiting')
"""
_CANCEL = """
UPDATE {run}
SET state = 'cancelled', waits_for = NULL, ended_at = %s, cancel_requested_at = %s, cancel_by = %s, why = %s
WHERE {ints:id} AND ({was:state} = 'queued' OR {was:state} = 'waiting')
"""
_RUNNING = "SELECT r.id FROM {run} r WHERE r.state = 'running' AND {was:r.job} = %s LIMIT 1"


def delete_schedule(
    database: Database,
    schedule_id: str,
    *,
    by: str | None,
    reason: str | None = None,
    check: schedules.RowCheck = schedules.any_row,
) -> None:
    """Delete a schedule for an operator.

    Refused while a living node has it in its code. If no living node has its job, all its ticks that have not started
    are skipped, whenever they were due, because no node would run them.
    """
    row = schedules.schedule(database, schedule_id, check=check)
    owners = _owners(database, row.job)
    if row.origin == CODE and owners:
        raise LedgerRefused(
            f"schedule {row.id!r} is declared in the code of job {row.job!r}, which {_named(owners)} has: it would "
            "come back with the next start. Remove it there and deploy, or pause it: "
            f"fencepost schedules pause {row.id}"
        )
    schedules.delete(database, schedule_id, by=by, reason=reason, even_of_code=True, check=check)
    if not owners:
        statements, connection = _connect(database)
        _in_batches(
            connection,
            statements,
            _OPEN_TICKS,
            schedule_id,
            change=lambda cursor, ids: statements.change(cursor, _SKIP, statements.now_us(cursor), ids),
        )
        connection.rest()


def forget(database: Database, name: str, *, by: str, reason: str | None = None) -> Forgotten:
    """Forget a job that no living node has: delete its schedules, cancel its pending runs, remove its row.

    The audit has an entry before that, because what is cancelled first stays cancelled if the rest is cut off. If
    somebody else renames or forgets the job meanwhile, this is refused, and nothing under its new name is removed.
    """
    known_job(database, name)
    _refuse_living(database, name)
    about = About(job=name, by=by, reason=reason)
    begun = begin(database, Noted.JOB_FORGOTTEN, about, first=partial(_first, database, name))
    statements, connection = _connect(database)
    try:
        found = schedules.schedules(database, job=name, limit=1_000_000)
        for each in found:
            schedules.delete(
                database, each.id, by=by, reason=reason, even_of_code=True, check=partial(_refuse_moved, name)
            )
        runs = _in_batches(
            connection, statements, _OPEN, name, change=lambda cursor, ids: _cancelled(database, cursor, ids, about)
        )
        about = about._replace(detail={"begun": begun})
        connection.write(lambda cursor: _remove(database, cursor, statements, name, about))
    finally:
        connection.rest()
    return Forgotten(len(found), runs)


def _first(database: Database, name: str, cursor: Cursor, number: int) -> int:
    refuse_begun(begun_within(database, cursor), [name])
    return number


def _refuse_moved(name: str, row: StoredSchedule) -> None:
    """Refuse to delete a schedule that has another job meanwhile."""
    if row.job != name:
        raise LedgerRefused(f"schedule {row.id!r} is of job {row.job!r} now: somebody else has renamed {name!r}")


def _remove(database: Database, cursor: Cursor, statements: LedgerStatements, name: str, about: About) -> None:
    next_number(database, cursor)  # a rename is begun before this, and found, or afterwards, and finds no job
    refuse_begun(begun_within(database, cursor), [name])
    running = statements.rows(cursor, _RUNNING, name)
    if running:
        raise LedgerRefused(f"run {running[0][0]} of job {name!r} has not ended: fencepost show {running[0][0]}")
    table = database.tables.job
    if not database.change(cursor, delete_from(table).where(table.c.name == name)):
        raise NoSuchJob(name)  # somebody else has renamed or forgotten it meanwhile
    permissions = forget_permissions(database, cursor, name)
    forget_figures(database, cursor, name)
    note(
        database,
        cursor,
        Noted.JOB_FORGOTTEN,
        about._replace(detail={"permissions": permissions, **(about.detail or {})}),
    )


def _cancelled(database: Database, cursor: Cursor, ids: Any, about: About) -> int:
    refuse_begun(begun_within(database, cursor), [str(about.job)])
    statements, why = statements_for(database), f"job forgotten by {about.by}"
    why += f": {about.reason}" if about.reason else ""
    now_us = statements.now_us(cursor)
    return statements.change(cursor, _CANCEL, now_us, now_us, said(about.by), said(why), ids)


def _in_batches(
    connection: LedgerConnection,
    statements: LedgerStatements,
    find: str,
    name: str,
    *,
    change: Callable[[Cursor, Any], int],
) -> int:
    """Change the rows that `find` returns until there are none; return their number."""
    count = 0

    def work(cursor: Cursor) -> int:
        ids = [row[0] for row in statements.rows(cursor, f"{find} ORDER BY r.id LIMIT {_BATCH}{{skip_locked}}", name)]
        return change(cursor, statements.ints(ids)) if ids else 0

    while changed := connection.write(work):
        count += changed
    return count


def _connect(database: Database) -> tuple[LedgerStatements, LedgerConnection]:
    connection = database.connect("removing")
    return statements_for(connection), connection


def _refuse_living(database: Database, name: str) -> None:
    owners = _owners(database, name)
    if owners:
        raise LedgerRefused(
            f"{_named(owners)} has job {name!r}, and would store it again at its next start: remove it from the code "
            "and deploy first, or pause its schedules (fencepost schedules pause)"
        )


def _owners(database: Database, job: str) -> list[str]:
    return [node.name for node in living_nodes(database) if job in node.jobs]


def _named(owners: list[str]) -> str:
    return f"the living node {owners[0]}" + (f" (and {len(owners) - 1} more)" if len(owners) > 1 else "")
