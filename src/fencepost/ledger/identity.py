"""The identity of a ledger: a random name in its database, to check whether a connection leads to that ledger.

A copy of the database has the same name. Where the name is checked that is harmless: the runs of a copy no longer
belong to this ledger.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.ledger.database import Database
    from fencepost.ledger.dialects import Cursor


def identity(database: Database) -> str:
    """Return the name of the ledger; the first call gives it one. Read once per process, then cached."""
    if database.known_identity is None:
        found = database.read(lambda cursor: _read(cursor, database))
        database.known_identity = found or database.write(lambda cursor: _create(cursor, database))
    return database.known_identity


def identity_within(cursor: Cursor, database: Database) -> str:
    """Return the current name in a transaction that writes: a copy may just have been given another one."""
    return _read(cursor, database) or _create(cursor, database)


def present_identity(database: Database) -> str:
    """Return the current name, even if another process has changed it."""
    return database.read(lambda cursor: _read(cursor, database)) or identity(database)


def _read(cursor: Cursor, database: Database) -> str | None:
    cursor.execute(f"SELECT id FROM {database.tables.name('identity')}")  # noqa: S608 - a checked identifier
    row = cursor.fetchone()
    return None if row is None else str(row[0])


def _create(cursor: Cursor, database: Database) -> str:
    name = database.runtime.new_id()
    database.dialect.insert_row(cursor, database.tables.identity, {"only": 1, "id": name})
    found = _read(cursor, database)
    return found or name


_seen: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()  # by connection of the driver, then by table


def refuse_another_ledger(cursor: Cursor, database: Database) -> None:
    """Refuse a connection of the caller that leads to another ledger than this one. Each connection is checked once.

    If neither has a name yet, the check is not possible. A connection that is switched to another database later (USE,
    search_path) is not checked again. Connections of sqlite3 cannot be remembered, and are checked each time, which
    costs next to nothing.
    """
    connection: Any = cursor.connection  # type: ignore[attr-defined]
    table = database.tables.name("identity")
    with suppress(TypeError):
        if database.known_identity is not None and _seen.get(connection, {}).get(table) == database.known_identity:
            return
    found = _read(cursor, database)
    ours = _known(database) if found is None else identity(database)
    if found != ours:
        raise ConfigurationError(
            "tx= is a connection to another ledger, whose tables have the same names: its runs would be executed "
            f"there, and not by the nodes of this one; give a connection to {database.url}"
        )
    if found is not None:
        with suppress(TypeError):
            _seen.setdefault(connection, {})[table] = found


def _known(database: Database) -> str | None:
    """Return the name of the ledger, if it has one."""
    if database.known_identity is None:
        database.known_identity = database.read(lambda cursor: _read(cursor, database))
    return database.known_identity
