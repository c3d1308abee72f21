"""Deploys: the schedules that are declared in code are stored in the ledger.

**Promises.** An older deploy never overwrites a newer one; their generations are compared. Two nodes of one deploy may
start at the same time. Schedules of jobs that this process does not know are left alone: an application may run as
several programs with different jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import or_

from fencepost.core.noted import Noted
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.schedule_rows import (
    CODE,
    DUES,
    RUNTIME,
    DueRules,
    NewSchedule,
    ScheduleChange,
    StoredSchedule,
    every_row,
)


class Synced(NamedTuple):
    """The schedule ids that a deploy changed. `kept`: a newer deploy, or a change at run time, has them differently."""

    made: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def sync_code(
    database: Database,
    *,
    generation: int,
    jobs: Collection[str],
    schedules: Sequence[NewSchedule],
    why: str = "",
    dues: DueRules = DUES,
    connection: LedgerConnection | None = None,
) -> Synced:
    """Create the schedules that are new, change those that changed, delete those that are no longer declared.

    `why` is for the journal.

    Only schedules of `jobs`, the jobs that this process knows, are deleted. Schedules that a deploy of a higher
    generation has written stay, and so do those that were created at run time under the same id.
    """

    def work(cursor: Cursor) -> Synced:
        declared = {each.id: each for each in schedules}
        if _is_in_sync(_concerned(database, cursor, declared, jobs), declared, generation):
            return Synced()
        rows = _concerned(database, cursor, declared, jobs, for_update=True)
        change = ScheduleChange(database, cursor, dues, why=why or f"deploy of generation {generation}")
        return _synced(change, rows, declared, generation)

    return (connection or database).write(work)


def otherwise(
    database: Database,
    *,
    jobs: Collection[str],
    schedules: Sequence[NewSchedule],
    connection: LedgerConnection | None = None,
) -> frozenset[str]:
    """Return those of `jobs` whose stored schedules differ from the declared ones; nothing is changed."""

    def work(cursor: Cursor) -> frozenset[str]:
        declared = {each.id: each for each in schedules}
        rows = _concerned(database, cursor, declared, jobs)
        missing = {each.job for each in schedules if each.id not in rows}
        return frozenset(missing | {row.job for row in rows.values() if not _is_same(row, declared.get(row.id))})

    return (connection or database).read(work)


def _synced(
    change: ScheduleChange, rows: Mapping[str, StoredSchedule], declared: Mapping[str, NewSchedule], generation: int
) -> Synced:
    done: dict[str, list[str]] = {name: [] for name in Synced._fields}
    for schedule_id in sorted(declared.keys() | rows.keys()):
        outcome = _synced_one(change, rows.get(schedule_id), declared.get(schedule_id), generation)
        if outcome is not None:
            done[outcome].append(schedule_id)
    return Synced(**{name: tuple(ids) for name, ids in done.items()})


def _synced_one(
    change: ScheduleChange, row: StoredSchedule | None, new: NewSchedule | None, generation: int
) -> str | None:
    """Sync one schedule; return the field of `Synced` to which its id belongs."""
    if row is None:
        if new is None or not change.insert(new, CODE, generation):
            return None  # another node has created it in the meantime
        change.note(Noted.SCHEDULE_MADE, new.job, new.id)
        return "made"
    if row.generation > generation or (row.origin == RUNTIME and row.deleted_at is None):
        return "kept" if not _is_same(row, new) else None
    if new is None:
        change.bury(row, generation)
        change.note(Noted.SCHEDULE_DELETED, row.job, row.id)
        return "deleted"
    return _rewritten(change, row, new, generation)


def _rewritten(change: ScheduleChange, row: StoredSchedule, new: NewSchedule, generation: int) -> str | None:
    if row.deleted_at is None and row.origin == CODE and row.job != new.job:
        row = change.rename(row, new.job)  # the same schedule, as its id shows
        change.note(Noted.SCHEDULE_CHANGED, new.job, new.id)
    if _is_same(row, new):
        change.raise_generation(row, generation)
        return None
    change.rewrite(row, new, CODE, generation)
    outcome, act = ("made", Noted.SCHEDULE_MADE) if row.deleted_at is not None else ("changed", Noted.SCHEDULE_CHANGED)
    change.note(act, new.job, new.id)
    return outcome


def _is_in_sync(rows: Mapping[str, StoredSchedule], declared: Mapping[str, NewSchedule], generation: int) -> bool:
    return rows.keys() == declared.keys() and all(
        row.generation == generation and _is_same(row, declared[row.id]) for row in rows.values()
    )


def _is_same(row: StoredSchedule, new: NewSchedule | None) -> bool:
    """Whether a schedule is stored as declared, or, if not declared, deleted."""
    if new is None or row.deleted_at is not None:
        return new is None and row.deleted_at is not None
    return row.origin == CODE and (row.job, row.spec, row.params) == (new.job, new.spec, new.params)


def _concerned(
    database: Database,
    cursor: Cursor,
    declared: Mapping[str, NewSchedule],
    jobs: Collection[str],
    *,
    for_update: bool = False,
) -> dict[str, StoredSchedule]:
    c = database.tables.schedule.c
    declared_here = (c.origin == CODE) & c.deleted_at.is_(None) & c.job.in_(sorted(jobs))
    query = every_row(database).where(or_(c.id.in_(sorted(declared)), declared_here)).order_by(c.id)
    rows = database.rows(cursor, query.with_for_update() if for_update else query)
    return {row[0]: StoredSchedule(*row) for row in rows}
