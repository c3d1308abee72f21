"""The ids of runs and of the journal: before a node joins, sequences that are behind their tables are advanced."""

from __future__ import annotations

from fencepost.errors import LedgerRefused
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import statements_for
from fencepost.schema.sequences import LaggingSequence, advance_sql, advice, behind, lock_sql, look_sql

_NUMBERED = ("run", "journal")
_HIGHEST = "SELECT coalesce(max(r.id), 0) FROM {run} r"


def advance_sequences(database: Database, *, connection: LedgerConnection | None = None) -> list[LaggingSequence]:
    """Advance sequences that are behind; return them. Raises `LedgerRefused` with advice if the user may not do it."""
    place = connection or database
    if database.url.is_file:
        return place.write(lambda cursor: _advance_counter(database, cursor)) if _lags(database, place) else []
    if not database.dialect.has_sequences:
        return []
    tables = [database.tables.name(name) for name in _NUMBERED]
    found = place.read(lambda cursor: [each for name in tables if (each := _behind(cursor, name)) is not None])
    for each in found:
        try:
            place.write(lambda cursor, name=each.table: _advance(cursor, name))  # type: ignore[misc]
        except LedgerRefused as error:
            raise LedgerRefused(f"{each}: {advice(each.table)} ({error})") from error
    return found


def _lags(database: Database, place: LedgerConnection | Database) -> bool:
    """Whether SQLite's counter of run ids is behind the runs.

    SQLite then continues from the highest id in the table; after that run is pruned, its id would be assigned again.
    """
    return bool(place.read(lambda cursor: _count_behind(database, cursor)))


def _count_behind(database: Database, cursor: Cursor) -> list[LaggingSequence]:
    statements = statements_for(database)
    [(highest,)] = statements.rows(cursor, _HIGHEST)
    found = behind(database.tables.name("run"), (highest, database.dialect.top_id(cursor)))
    return [] if found is None else [found]


def _advance_counter(database: Database, cursor: Cursor) -> list[LaggingSequence]:
    found = _count_behind(database, cursor)
    for each in found:
        database.dialect.raise_ids(cursor, each.highest_id)
    return found


def _behind(cursor: Cursor, table: str) -> LaggingSequence | None:
    cursor.execute(look_sql(table))
    return behind(table, cursor.fetchone())


def _advance(cursor: Cursor, table: str) -> None:
    cursor.execute(lock_sql(table))
    if _behind(cursor, table) is not None:
        cursor.execute(advance_sql(table))
