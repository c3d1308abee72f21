"""Which ledger this is: a random name in its database, by which a connection can be asked whether it leads there.

A copy of the database has the same name. That does no harm where it is asked for: a copy's runs are no longer ours.
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
    """Return the name of the ledger; whoever asks first gives it one. Asked of the database once, then kept."""
    if database.known_identity is None:
        found = database.read(lambda cursor: _read(cursor, database))
        database.known_identity = found or database.write(lambda cursor: _given(cursor, database))
    return database.known_identity


def identity_within(cursor: Cursor, database: Database) -> str:
    """Return the name that the ledger has now, in a transaction that writes: a copy may just have got another one."""
    return _read(cursor, database) or _given(cursor, database)


def present_identity(database: Database) -> str:
    """Return the name that the ledger has now, also if another process has given it a new one."""
    return database.read(lambda cursor: _read(cursor, database)) or identity(database)


def _read(cursor: Cursor, database: Database) -> str | None:
    cursor.execute(f"SELECT id FROM {database.tables.name('identity')}")  # noqa: S608 - a checked identifier
    row = cursor.fetchone()
    return None if row is None else str(row[0])


def _given(cursor: Cursor, database: Database) -> str:
    name = database.runtime.new_id()
    database.dialect.insert_row(cursor, database.tables.identity, {"only": 1, "id": name})
    found = _read(cursor, database)
    return found or name


_seen: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()  # by a driver's connection and the table asked


def refuse_another_ledger(cursor: Cursor, database: Database) -> None:
    """Refuse a connection of the caller's that leads to another ledger than this one; each is asked once.

    Where neither has a name yet, nothing can be told. A connection that is turned to another database afterwards (USE,
    search_path) is not asked again. Those of sqlite3 cannot be remembered, and asking them costs next to nothing.
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
