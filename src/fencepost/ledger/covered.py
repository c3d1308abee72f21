"""Runs of a schedule that cover given due times: what bulk jobs ask, so that no window is done twice."""

from __future__ import annotations

from fencepost.ledger.database import Database
from fencepost.ledger.history import RunRow, whole_runs


def stretches(database: Database, schedule_id: str, at_us: int) -> list[RunRow]:
    """Return all runs that cover this due time together with other due times, however many runs come after it.

    Scans the stored runs of the schedule from that time on.
    """
    c = database.tables.run.c
    several = (c.first_due_at <= at_us, c.first_due_at < c.due_at)
    query = whole_runs(database).where(c.schedule == schedule_id, c.due_at >= at_us, *several).order_by(c.id)
    return database.read(lambda cursor: [RunRow(*row) for row in database.rows(cursor, query)])


def due_within(database: Database, schedule_id: str, after_us: int, until_us: int) -> list[RunRow]:
    """Return all runs of a schedule with ``after_us < due_at <= until_us``, by id."""
    c = database.tables.run.c
    query = (
        whole_runs(database).where(c.schedule == schedule_id, c.due_at > after_us, c.due_at <= until_us).order_by(c.id)
    )
    return database.read(lambda cursor: [RunRow(*row) for row in database.rows(cursor, query)])
