"""Schedules at run time: read, create, change, pause, resume and delete them.

Only a deploy changes or deletes a schedule that is declared in code (see `deploys`); people can pause and resume it.
Each change is noted in the journal. `schedule_rows` describes what is promised of `planned_through` and of missed due
times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple

from sqlalchemy import select, update

from fencepost.core.noted import Noted
from fencepost.core.tick import spelled_us
from fencepost.errors import LedgerRefused, NoSuchSchedule, StateChanged
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import said
from fencepost.ledger.journal import About, note
from fencepost.ledger.schedule_rows import (
    CODE,
    DUES,
    RUNTIME,
    DueRules,
    NewSchedule,
    ScheduleChange,
    StoredSchedule,
    every_row,
    known_row,
    living_row,
    locked_row,
    update_row,
)
from fencepost.ledger.skipping import skip_ahead

RowCheck = Callable[[StoredSchedule], None]
"""Looks at the row of a schedule inside of the act's own transaction, and raises if the act is not allowed on it."""


class Must(Enum):
    """What the caller of `put` takes for granted."""

    BE_NEW = "be new"
    EXIST = "exist"


class EndedPauses(NamedTuple):
    """How many schedules were resumed because their pause had ended, and when the next pause ends."""

    now_us: int
    resumed: int = 0
    next_end_us: int | None = None


def any_row(_: StoredSchedule) -> None:
    """Allow the act on every schedule."""


def schedule(
    database: Database, schedule_id: str, *, check: RowCheck = any_row, connection: LedgerConnection | None = None
) -> StoredSchedule:
    """Return one schedule, or raise `NoSuchSchedule`."""

    def work(cursor: Cursor) -> StoredSchedule:
        row = living_row(database, cursor, schedule_id)
        check(row)
        return row

    return (connection or database).read(work)


def schedules(
    database: Database,
    *,
    job: str | None = None,
    jobs: Collection[str] | None = None,
    ids: Collection[str] | None = None,
    after_id: str = "",
    limit: int = 1000,
    with_deleted: bool = False,
    connection: LedgerConnection | None = None,
) -> list[StoredSchedule]:
    """Return schedules by id, from the first after `after_id` on; only those of `jobs` and only these `ids`."""
    if any(wanted is not None and not wanted for wanted in (jobs, ids)):
        return []
    c = database.tables.schedule.c
    query = every_row(database).where(c.id > after_id).order_by(c.id).limit(limit)
    if job is not None:
        query = query.where(c.job == job)
    if jobs is not None:
        query = query.where(c.job.in_(sorted(jobs)))
    if ids is not None:
        query = query.where(c.id.in_(sorted(ids)))
    if not with_deleted:
        query = query.where(c.deleted_at.is_(None))
    return (connection or database).read(lambda cursor: [StoredSchedule(*row) for row in database.rows(cursor, query)])


class Beside(NamedTuple):
    """A schedule that starts the same job with the same parameters, and whether it was created at run time."""

    id: str
    is_of_run_time: bool


def with_params(database: Database, cursor: Cursor, job: str, params: str) -> list[Beside]:
    """Return the schedules of a job whose parameters equal this JSON text, by id."""
    c = database.tables.schedule.c
    query = select(c.id, c.origin, c.params).where(c.job == job, c.deleted_at.is_(None)).order_by(c.id)
    return [Beside(row[0], row[1] == RUNTIME) for row in database.rows(cursor, query) if row[2] == params]


def put(
    database: Database,
    new: NewSchedule,
    *,
    by: str | None = None,
    reason: str | None = None,
    check: RowCheck = any_row,
    must: Must | None = None,
    dues: DueRules = DUES,
    connection: LedgerConnection | None = None,
) -> StoredSchedule:
    """Create a schedule, or change the one with this id. It is planned from now on.

    With `must`, raise `NoSuchSchedule` if it has to exist and does not, `StateChanged` if it has to be new and is not.
    """

    def work(cursor: Cursor) -> StoredSchedule:
        change = ScheduleChange(database, cursor, dues)
        row = locked_row(database, cursor, new.id)
        if must is Must.EXIST and (row is None or row.deleted_at is not None):
            raise NoSuchSchedule(new.id)
        if row is None and change.insert(new, RUNTIME, 0):
            act = Noted.SCHEDULE_MADE
        else:
            row = row or known_row(database, cursor, new.id)
            check(row)
            if must is Must.BE_NEW and row.deleted_at is None:
                raise StateChanged(f"there is a schedule {row.id!r} already, and nothing was done")
            _refuse_code(row)
            act = Noted.SCHEDULE_MADE if row.deleted_at is not None else Noted.SCHEDULE_CHANGED
            change.rewrite(row, new, RUNTIME, 0)
        note(database, cursor, act, About(job=new.job, schedule=new.id, by=by, reason=reason))
        return known_row(database, cursor, new.id)

    return (connection or database).write(work)


def delete(
    database: Database,
    schedule_id: str,
    *,
    by: str | None = None,
    reason: str | None = None,
    even_of_code: bool = False,
    check: RowCheck = any_row,
    dues: DueRules = DUES,
    connection: LedgerConnection | None = None,
) -> None:
    """Delete a schedule. Runs that are planned ahead are skipped; runs that are already due still run.

    A schedule that is declared in code is refused, because the next start of a node that declares it would bring it
    back. `even_of_code` deletes it anyway: for a job that no code declares any more.
    """

    def work(cursor: Cursor) -> None:
        row = living_row(database, cursor, schedule_id, for_update=True)
        check(row)
        if not even_of_code:
            _refuse_code(row)
        ScheduleChange(database, cursor, dues).bury(row, row.generation)
        note(database, cursor, Noted.SCHEDULE_DELETED, About(job=row.job, schedule=row.id, by=by, reason=reason))

    (connection or database).write(work)


def pause(
    database: Database,
    schedule_id: str,
    *,
    until_us: int | None = None,
    by: str | None = None,
    reason: str | None = None,
    check: RowCheck = any_row,
    dues: DueRules = DUES,
    connection: LedgerConnection | None = None,
) -> StoredSchedule:
    """Plan nothing until `resume`, or until the end, and skip the runs that are planned ahead.

    A schedule that is paused stays so, with the new end and reason; with the same ones, this has no effect.
    """

    def work(cursor: Cursor) -> StoredSchedule:
        change = ScheduleChange(database, cursor, dues)
        row = living_row(database, cursor, schedule_id, for_update=True)
        check(row)
        row = change.end_pause(row)
        who, why = said(by), said(reason)
        is_other = row.paused_until != until_us or (why is not None and why != row.pause_reason)
        if row.paused_at is None or is_other:
            values = {"paused_by": who, "pause_reason": why, "paused_until": until_us, "next_due_at": None}
            if row.paused_at is None:
                skip_ahead(database, cursor, row.id, now_us=change.now_us, why="paused")
                values["paused_at"] = change.now_us
            update_row(database, cursor, row.id, values | {"updated_at": change.now_us})
            detail = None if until_us is None else {"until": spelled_us(until_us)}
            about = About(job=row.job, schedule=row.id, by=by, reason=reason, detail=detail)
            note(database, cursor, Noted.SCHEDULE_PAUSED, about)
        return known_row(database, cursor, row.id)

    return (connection or database).write(work)


def resume(
    database: Database,
    schedule_id: str,
    *,
    by: str | None = None,
    reason: str | None = None,
    check: RowCheck = any_row,
    dues: DueRules = DUES,
    connection: LedgerConnection | None = None,
) -> StoredSchedule:
    """Plan again from now on. Due times missed meanwhile become one skipped run, with their range and count."""

    def work(cursor: Cursor) -> StoredSchedule:
        row = living_row(database, cursor, schedule_id, for_update=True)
        check(row)
        if row.paused_at is not None:
            ScheduleChange(database, cursor, dues).resume(row)
            note(database, cursor, Noted.SCHEDULE_RESUMED, About(job=row.job, schedule=row.id, by=by, reason=reason))
        return known_row(database, cursor, row.id)

    return (connection or database).write(work)


def end_pauses(
    database: Database,
    *,
    is_believed: Callable[[int], bool] = lambda _: True,
    dues: DueRules = DUES,
    connection: LedgerConnection | None = None,
) -> EndedPauses:
    """Resume the schedules whose pause has ended by itself.

    Each is resumed as of its end, however late this is called: due times until then were paused, and the misfire policy
    decides about later ones. Nothing is done if the ledger's time is not believed. Reads all schedules: call it rarely.
    """
    use, c = connection or database, database.tables.schedule.c
    query = select(c.id, c.paused_at, c.paused_until).where(c.paused_until.is_not(None), c.deleted_at.is_(None))
    now_us, found = use.read(lambda cursor: (database.dialect.now_us(cursor), database.rows(cursor, query)))
    left_over = [row[0] for row in found if row[1] is None]
    over = [row[0] for row in found if row[1] is not None and row[2] <= now_us]
    if over and not is_believed(now_us):
        return EndedPauses(now_us)
    for schedule_id in left_over:
        use.write(lambda cursor, name=schedule_id: _forget_end(database, cursor, name))  # type: ignore[misc]
    ended = [use.write(lambda cursor, name=each: _end_pause(database, cursor, dues, name)) for each in over]  # type: ignore[misc]
    next_us = min((row[2] for row in found if row[1] is not None and row[2] > now_us), default=None)
    return EndedPauses(now_us, sum(ended), next_us)


def _end_pause(database: Database, cursor: Cursor, dues: DueRules, schedule_id: str) -> bool:
    change, row = ScheduleChange(database, cursor, dues), locked_row(database, cursor, schedule_id)
    return row is not None and change.end_pause(row) is not row


def _forget_end(database: Database, cursor: Cursor, schedule_id: str) -> None:
    """Remove an end that an older version left when it resumed, or the next pause would have it."""
    c = database.tables.schedule.c
    change = update(database.tables.schedule).where(c.id == schedule_id, c.paused_at.is_(None))
    database.change(cursor, change.values(paused_until=None))


def _refuse_code(row: StoredSchedule) -> None:
    if row.origin == CODE and row.deleted_at is None:
        raise LedgerRefused(
            f"schedule {row.id!r} is declared in the code of job {row.job!r}: change it there and deploy, or pause it"
        )
