"""Which ledger this is: a random name in its database, by which a connection can be asked whether it leads there.

A copy of the database has the same name. That does no harm where it is asked for: a copy's runs are no longer ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.ledger.database import Database
    from fencepost.ledger.dialects import Cursor


def identity(database: Database) -> str:
    """Return the name of the ledger; whoever asks first gives it one. Asked of the database once, then kept."""
    if database.known_identity is None:
        found = database.read(lambda cursor: _read(cursor, database))
        database.known_identity = found or database.write(lambda cursor: _given(cursor, database))
    return database.known_identity


def _read(cursor: Cursor, database: Database) -> str | None:
    cursor.execute(f"SELECT id FROM {database.tables.name('identity')}")  # noqa: S608 - a checked identifier
    row = cursor.fetchone()
    return None if row is None else str(row[0])


def _given(cursor: Cursor, database: Database) -> str:
    name = database.runtime.new_id()
    database.dialect.insert_row(cursor, database.tables.identity, {"only": 1, "id": name})
    found = _read(cursor, database)
    return found or name
