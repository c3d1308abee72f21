"""Skipping runs that are planned ahead: when a schedule is paused or deleted, its next due times are not to run.

Only affects ticks that are not due yet and were never claimed. Runs that are already due, were claimed once, or were
requested (a back-fill, a retry) stay.
"""

from __future__ import annotations

from sqlalchemy import update

from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor


def skip_ahead(database: Database, cursor: Cursor, schedule_id: str, *, now_us: int, why: str) -> int:
    """Skip the planned ticks of a schedule that are due after `now_us`; return how many."""
    table = database.tables.run
    c = table.c
    is_ahead = (
        c.schedule == schedule_id,
        c.due_at > now_us,
        c.state.in_(("queued", "waiting")),
        c.attempts == 0,
        c.origin_key.like("tick:%"),
    )
    values = {"state": "skipped", "waits_for": None, "why": why, "ended_at": now_us}
    return database.change(cursor, update(table).where(*is_ahead).values(values))
