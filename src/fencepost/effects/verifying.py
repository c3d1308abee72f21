"""Checks whether a database is ready to receive effects: what is missing, outdated, or not permitted.

It changes nothing: privileges are queried, or tested with statements that match no row. On SQLite it checks whether the
file can be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fencepost.effects.installing import how_to_install, tables_of
from fencepost.errors import LedgerRefused
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.migrations import effects_revision, is_done
from fencepost.schema.effects import NEWEST, REVISIONS
from fencepost.schema.revisions import is_readable

RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_ATTRIBUTES = """SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"""
_INFORMATION = """SELECT column_name FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = %s"""
_CATALOGUES = {
    "sqlite": "SELECT name FROM pragma_table_info(?)",
    "postgresql": _ATTRIBUTES,
    "mysql": _INFORMATION,
}


@dataclass(frozen=True, slots=True)
class EffectsReport:
    """The result of the check.

    `missing` lists tables, procedures, and columns as ``table.column``; `denied` lists privileges as ``INSERT on
    table``. `advice` says what to do; it is empty if the database is ready.
    """

    database: str
    found: str | None
    wanted: str
    missing: tuple[str, ...]
    denied: tuple[str, ...]
    advice: tuple[str, ...]

    @property
    def is_ready(self) -> bool:
        """Whether the database is ready to receive effects."""
        return not self.advice


def verify(database: Database) -> EffectsReport:
    """Check everything that effects need, and return what to do about what is missing."""
    if database.url.is_file and not database.url.path.exists():  # opening it would create an empty file
        found, there = None, {}
    else:
        found, there = effects_revision(database), _columns_there(database)
    missing = tuple(_missing(database, there))
    denied = tuple(_denied(database, there))
    advice = tuple(_advice(database, found, missing=missing, denied=denied))
    return EffectsReport(str(database.url), found, NEWEST, missing, denied, advice)


def _missing(database: Database, there: dict[str, list[str]]) -> Iterator[str]:
    tables = tables_of(database)
    for table in tables.all:
        if table.name not in there:
            yield table.name
            continue
        yield from (f"{table.name}.{each.name}" for each in table.columns if each.name not in there[table.name])
    if tables.version not in there:
        yield tables.version
    yield from (name for name, right in _procedures(database).items() if right is None)


def _columns_there(database: Database) -> dict[str, list[str]]:
    """Return the column names of each of our tables that exists."""
    tables = tables_of(database)
    names = [*(table.name for table in tables.all), tables.version]
    return {name: columns for name in names if (columns := database.read(_columns(database, name)))}


def _columns(database: Database, table: str) -> Callable[[Cursor], list[str]]:
    def work(cursor: Cursor) -> list[str]:
        cursor.execute(_CATALOGUES[database.dialect.name], (_full(database, table),))
        return [str(row[0]) for row in cursor.fetchall()]

    return work


def _procedures(database: Database) -> dict[str, bool | None]:
    """Return for each of our procedures whether it may be called; None if it does not exist."""
    if not database.dialect.has_procedures:
        return {}

    def work(cursor: Cursor) -> dict[str, bool | None]:
        found: dict[str, bool | None] = {}
        for name in tables_of(database).procedures:
            cursor.execute("SELECT has_function_privilege(to_regproc(%s), 'EXECUTE')", (_full(database, name),))
            found[name] = cursor.fetchone()[0]
        return found

    return database.read(work)


def _full(database: Database, table: str) -> str:
    return f"{database.tables.schema}.{table}" if database.tables.schema else table


def _denied(database: Database, there: dict[str, list[str]]) -> Iterator[str]:
    """Return the missing privileges on the existing tables, except Alembic's, which only installing uses."""
    for table in tables_of(database).all:
        if columns := there.get(table.name):
            rights = [right for right in RIGHTS if not _may(database, right, _full(database, table.name), columns[0])]
            if rights:
                yield f"{', '.join(rights)} on {table.name}"
    yield from (f"EXECUTE ON PROCEDURE {name}" for name, right in _procedures(database).items() if right is False)


def _may(database: Database, right: str, table: str, column: str) -> bool:
    match database.dialect.name:
        case "postgresql":
            return bool(database.read(lambda cursor: _asked(cursor, right, table)))
        case "sqlite":
            return right == "SELECT" or _is_let(database, "SELECT 1")  # in a write transaction
        case _:
            return _is_let(database, _harmless(right, table, f"`{column}`"))


def _asked(cursor: Cursor, right: str, table: str) -> Any:
    cursor.execute("SELECT has_table_privilege(%s, %s)", (table, right))
    return cursor.fetchone()[0]


def _harmless(right: str, table: str, column: str) -> str:
    """Return a statement that changes no row. Without the privilege, the server refuses it."""
    match right:
        case "SELECT":
            return f"SELECT {column} FROM {table} WHERE 1 = 0"  # noqa: S608 - checked identifiers
        case "INSERT":
            return f"INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"  # noqa: S608 - as above
        case "UPDATE":
            return f"UPDATE {table} SET {column} = {column} WHERE 1 = 0"  # noqa: S608 - as above
        case _:
            return f"DELETE FROM {table} WHERE 1 = 0"  # noqa: S608 - as above


def _is_let(database: Database, statement: str) -> bool:
    try:
        database.write(lambda cursor: cursor.execute(statement))
    except LedgerRefused:
        return False
    return True


def _advice(
    database: Database, found: str | None, *, missing: tuple[str, ...], denied: tuple[str, ...]
) -> Iterator[str]:
    if found is not None and not is_readable(found, REVISIONS):
        yield f"these tables are from a newer Fencepost (this one knows up to {NEWEST}): use that version here"
    elif not is_done(found, REVISIONS, contract=False):
        yield f"run: {how_to_install(database)}"
    elif missing:
        version = _full(database, tables_of(database).version)
        yield (
            f"they existed (revision {found}), but were dropped or changed by hand: restore them, or DROP {version} "
            f"and the rest of a changed table, and run: {how_to_install(database)}"
        )
    if denied and database.url.is_file:
        yield f"make {database.url.path} and its folder writable for this user"
    elif denied:
        user = database.url.store.user or "the user of this URL"
        yield f"let their owner run: {'; '.join(f'GRANT {each} TO {user}' for each in denied)}"
