"""Exclusive keys that are held by a run."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select

from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor


def taken_keys(database: Database, cursor: Cursor, keys: Collection[str]) -> set[str]:
    """Return those of `keys` that a run holds."""
    c = database.tables.exclusive.c
    query = select(c.key).where(c.key.in_(keys), c.run_id.is_not(None))
    return {row[0] for row in database.rows(cursor, query)} if keys else set()
