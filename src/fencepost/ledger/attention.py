"""What needs a person, as the ledger has it: bounded questions, each answered by an index or by few rows.

None of them reads more than the schedules, the runs that have not ended, the runs that were given up, or the newest
lines of the journal, however much history there is. `jobs` are those that may be seen; None for all.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Select, func, select

from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.duplicates import CALLED_OFF
from fencepost.ledger.history import RunRow, runs_of_state
from fencepost.ledger.journal import JournalEntry
from fencepost.ledger.schedule_rows import StoredSchedule, every_row

_NEWEST_LINES = 20_000  # of the journal, which has no index by kind or time
_MOST_DEPLOYS = 20  # the newest since the time that is asked for; older ones are left out

Jobs = Collection[str] | None


def unplanned(database: Database, jobs: Jobs, *, before_us: int, limit: int) -> list[StoredSchedule]:
    """Return schedules that were due before a time and are not planned, although nodes have their jobs."""
    c = database.tables.schedule.c
    late = (c.next_due_at < before_us, c.no_node_since.is_(None), c.paused_at.is_(None), c.deleted_at.is_(None))
    return _schedules(database, jobs, every_row(database).where(*late).order_by(c.next_due_at).limit(limit))


def unserved(database: Database, jobs: Jobs, *, limit: int) -> list[StoredSchedule]:
    """Return schedules that are not planned because no living node has their job."""
    c = database.tables.schedule.c
    without = (c.no_node_since.is_not(None), c.deleted_at.is_(None))
    return _schedules(database, jobs, every_row(database).where(*without).order_by(c.no_node_since).limit(limit))


def paused_long(database: Database, jobs: Jobs, *, before_us: int, limit: int) -> list[StoredSchedule]:
    """Return schedules that were paused before a time, until a person resumes them, those paused longest first."""
    c = database.tables.schedule.c
    endless = (c.paused_at < before_us, c.paused_until.is_(None), c.deleted_at.is_(None))
    return _schedules(database, jobs, every_row(database).where(*endless).order_by(c.paused_at).limit(limit))


def _schedules(database: Database, jobs: Jobs, query: Select[Any]) -> list[StoredSchedule]:
    if jobs is not None and not jobs:
        return []
    if jobs is not None:
        query = query.where(database.tables.schedule.c.job.in_(sorted(jobs)))
    return database.read(lambda cursor: [StoredSchedule(*row) for row in database.rows(cursor, query)])


def long_running(database: Database, jobs: Jobs, *, started_before_us: int, limit: int) -> list[RunRow]:
    """Return running runs that began before a time, those that run longest first."""
    started = database.tables.run.c.started_at
    return runs_of_state(database, jobs, "running", [started < started_before_us], order=started, limit=limit)


def given_up(database: Database, jobs: Jobs, *, limit: int) -> list[RunRow]:
    """Return the newest runs that were given up."""
    newest = database.tables.run.c.id.desc()
    return runs_of_state(database, jobs, "dead", [], order=newest, limit=limit)


def late_in_queue(database: Database, jobs: Jobs, *, before_us: int, limit: int) -> list[RunRow]:
    """Return some of the runs that could have begun before a time, and have not."""
    return runs_of_state(database, jobs, "queued", [database.tables.run.c.available_at < before_us], limit=limit)


def repeated(database: Database, run_ids: Collection[int]) -> set[int]:
    """Return those of these runs that were repeated, also with other parameters, by a run that was not called off."""
    if not run_ids:
        return set()
    c = database.tables.run.c
    query = select(c.retry_of, c.state).where(c.retry_of.in_(sorted(run_ids)))
    return database.read(
        lambda cursor: {int(row[0]) for row in database.rows(cursor, query) if row[1] not in CALLED_OFF}
    )


def noted(database: Database, jobs: Jobs, whats: Collection[str], *, since_us: int, limit: int) -> list[JournalEntry]:
    """Return lines of these kinds since a time, newest first, among the newest lines of the journal."""
    c = database.tables.journal.c
    if jobs is not None and not jobs:
        return []

    def work(cursor: Cursor) -> list[JournalEntry]:
        [(last,)] = database.rows(cursor, select(func.max(c.id)))
        recent = (c.id > (last or 0) - _NEWEST_LINES, c.what.in_(sorted(whats)), c.at >= since_us)
        query = select(*(c[name] for name in JournalEntry._fields)).where(*recent)
        if jobs is not None:
            query = query.where(c.job.in_(sorted(jobs)))
        return [JournalEntry(*row) for row in database.rows(cursor, query.order_by(c.id.desc()).limit(limit))]

    return database.read(work)


class Deploy(NamedTuple):
    """A set of declarations that nodes brought for the first time, and one of these nodes, if it is still on record."""

    at: int
    generation: int | None
    version: str | None
    node: str | None


def deploys(database: Database, *, since_us: int) -> list[Deploy]:
    """Return the deploys since a time, newest first."""
    deploy, node = database.tables.deploy.c, database.tables.node.c
    first = select(deploy.fingerprint, deploy.first_seen_at).where(deploy.first_seen_at >= since_us)

    def work(cursor: Cursor) -> list[Deploy]:
        found = database.rows(cursor, first.order_by(deploy.first_seen_at.desc()).limit(_MOST_DEPLOYS))
        columns = select(node.fingerprint, node.generation, node.version, node.name)
        brought = columns.where(node.fingerprint.in_([row[0] for row in found])).order_by(node.started_at.desc())
        by_print = {row[0]: row[1:] for row in database.rows(cursor, brought)} if found else {}
        return [Deploy(int(at), *by_print.get(mark, (None, None, None))) for mark, at in found]

    return database.read(work)
