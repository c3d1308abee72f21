"""Jobs as stored in the ledger. Commands, pages and the reaper, which do not load a job's code, read its policy here.

A newer deploy overwrites what an older one has stored, never the other way round.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select, update

from fencepost.errors import NoSuchJob
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor


class NewJob(NamedTuple):
    """A job that a node declares. `policy` and `signature` are JSON."""

    name: str
    type: str
    policy: str
    signature: str
    doc: str | None = None
    parent: str | None = None  # the job that it is a part of: who may operate that one may operate it


class JobRow(NamedTuple):
    """A job as stored. `seen_at` is the last time at which a node that has the job started."""

    name: str
    type: str
    policy: str
    signature: str
    doc: str | None
    parent: str | None
    generation: int
    seen_at: int


def register(
    database: Database, jobs: Sequence[NewJob], *, generation: int, connection: LedgerConnection | None = None
) -> tuple[str, ...]:
    """Store the `jobs` of a deploy. Return the names that keep a different definition, stored by a newer deploy."""

    def work(cursor: Cursor) -> tuple[str, ...]:
        known = {row.name: row for row in _rows(database, cursor)}
        return tuple(
            job.name for job in sorted(jobs) if _is_kept(database, cursor, job, known.get(job.name), generation)
        )

    return (connection or database).write(work)


def not_on_record(
    database: Database, jobs: Sequence[NewJob], *, generation: int, connection: LedgerConnection | None = None
) -> frozenset[str]:
    """Return the names of `jobs` that are not stored, or are stored differently by a deploy that is not newer."""

    def work(cursor: Cursor) -> frozenset[str]:
        known = {row.name: row for row in _rows(database, cursor)}
        return frozenset(job.name for job in jobs if not _is_on_record(job, known.get(job.name), generation))

    return (connection or database).read(work)


def _is_on_record(job: NewJob, row: JobRow | None, generation: int) -> bool:
    return row is not None and (row.generation > generation or tuple(row[: len(job)]) == tuple(job))


def _is_kept(database: Database, cursor: Cursor, job: NewJob, row: JobRow | None, generation: int) -> bool:
    """Store one job; return True if a newer deploy has stored another definition, which stays."""
    if row is not None and row.generation > generation:
        return tuple(row[: len(job)]) != tuple(job)
    table, values = database.tables.job, job._asdict() | {"generation": generation, "seen_at": database.dialect.now()}
    if row is None:
        database.dialect.insert_row(cursor, table, values)
    # Also after an insert: another node may have inserted the row first, with an older generation.
    change = update(table).where(table.c.name == job.name, table.c.generation <= generation).values(values)
    return database.change(cursor, change) == 0


def jobs(
    database: Database, *, names: Collection[str] | None = None, connection: LedgerConnection | None = None
) -> list[JobRow]:
    """Return jobs by name: all of them, or those of these names."""
    if names is not None and not names:
        return []
    return (connection or database).read(lambda cursor: _rows(database, cursor, names))


def job(database: Database, name: str, *, connection: LedgerConnection | None = None) -> JobRow:
    """Return one job, or raise `NoSuchJob`."""
    found = (connection or database).read(lambda cursor: _rows(database, cursor, [name]))
    if not found:
        raise NoSuchJob(name)
    return found[0]


def _rows(database: Database, cursor: Cursor, names: Collection[str] | None = None) -> list[JobRow]:
    table: Any = database.tables.job
    query = select(*(table.c[field] for field in JobRow._fields)).order_by(table.c.name)
    if names is not None:
        query = query.where(table.c.name.in_(sorted(names)))
    return [JobRow(*row) for row in database.rows(cursor, query)]


def parents(database: Database) -> list[tuple[str, str]]:
    """Return pairs of a job that is part of another job, and that other job."""
    c = database.tables.job.c
    query = select(c.name, c.parent).where(c.parent.is_not(None)).order_by(c.name)
    return database.read(lambda cursor: [(row[0], row[1]) for row in database.rows(cursor, query)])
