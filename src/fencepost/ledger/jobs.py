"""Jobs as the ledger knows them: those who have no code of a job (commands, pages, the reaper) read its policy here.

A newer deploy writes over what an older one has written, never the other way round.
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
    """A job that a node has. `policy` and `signature` are JSON."""

    name: str
    type: str
    policy: str
    signature: str
    doc: str | None = None
    parent: str | None = None  # the job that it is a part of: who may operate that one may operate it


class JobRow(NamedTuple):
    """A job on record. `seen_at`: when a node that has it started last."""

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
    """Write down `jobs` of a deploy; return the names that a newer deploy has written differently, and that stay."""

    def work(cursor: Cursor) -> tuple[str, ...]:
        known = {row.name: row for row in _rows(database, cursor)}
        return tuple(
            job.name for job in sorted(jobs) if _is_kept(database, cursor, job, known.get(job.name), generation)
        )

    return (connection or database).write(work)


def not_on_record(
    database: Database, jobs: Sequence[NewJob], *, generation: int, connection: LedgerConnection | None = None
) -> frozenset[str]:
    """Return which of `jobs` are not on record, or neither as they are here nor as a newer deploy has them."""

    def work(cursor: Cursor) -> frozenset[str]:
        known = {row.name: row for row in _rows(database, cursor)}
        return frozenset(job.name for job in jobs if not _is_on_record(job, known.get(job.name), generation))

    return (connection or database).read(work)


def _is_on_record(job: NewJob, row: JobRow | None, generation: int) -> bool:
    return row is not None and (row.generation > generation or tuple(row[: len(job)]) == tuple(job))


def _is_kept(database: Database, cursor: Cursor, job: NewJob, row: JobRow | None, generation: int) -> bool:
    """Write one job down unless it is; True if a newer deploy's stays."""
    if row is not None and row.generation > generation:
        return tuple(row[: len(job)]) != tuple(job)
    table, values = database.tables.job, job._asdict() | {"generation": generation, "seen_at": database.dialect.now()}
    if row is None:
        database.dialect.insert_row(cursor, table, values)
    # Also after an insert: somebody else's may have been quicker, and older.
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
    """Return pairs of a job that is part of another one, and that one."""
    c = database.tables.job.c
    query = select(c.name, c.parent).where(c.parent.is_not(None)).order_by(c.name)
    return database.read(lambda cursor: [(row[0], row[1]) for row in database.rows(cursor, query)])
