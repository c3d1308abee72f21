"""The rows of logs: written in batches, read by run, removed with the run.

**Promises.** A batch is one statement, whatever the number of runs in it. A chunk that is there already is left alone,
so a batch whose reply was lost can be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import and_, delete, exists, or_, select

from fencepost.core.log_chunks import LogChunk, Position
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor, Dialect

ChunkRange = tuple[int, int, int, int]
"""Chunks of one attempt: run, attempt, the first and the last number."""

_COLUMNS = tuple("bytes" if name == "size" else name for name in LogChunk._fields)
_RANGE = "(run_id = %s AND attempt = %s AND seq BETWEEN %s AND %s)"


def store(connection: LedgerConnection, chunks: Sequence[LogChunk], removed: Collection[ChunkRange] = ()) -> None:
    """Write these chunks, and remove others, in one transaction with a statement for each."""
    dialect = connection.dialect
    names = [dialect.words.identifier_preparer.quote(each) for each in _COLUMNS]
    deleted = _delete(dialect, len(removed)) if removed else ""

    def work(cursor: Cursor) -> None:
        if chunks:
            dialect.insert_absent(cursor, dialect.table("log_chunk"), names, chunks)
        if deleted:
            cursor.execute(deleted, [value for each in removed for value in each])

    connection.write(work)


def _delete(dialect: Dialect, ranges: int) -> str:
    where = " OR ".join([_RANGE] * ranges)
    return f"DELETE FROM {dialect.table('log_chunk')} WHERE {where}".replace("%s", dialect.mark)  # noqa: S608 - no value


def chunks_of(database: Database, run_id: int, *, attempt: int | None, after: Position, limit: int) -> list[LogChunk]:
    """Return chunks of a run after a position, in their order."""
    c = database.tables.operating["log_chunk"].c
    query = select(*(c[name] for name in _COLUMNS)).where(c.run_id == run_id)
    query = query.where(or_(c.attempt > after.attempt, and_(c.attempt == after.attempt, c.seq > after.seq)))
    if attempt is not None:
        query = query.where(c.attempt == attempt)
    query = query.order_by(c.attempt, c.seq).limit(limit)
    return database.read(lambda cursor: [_chunk(row) for row in database.rows(cursor, query)])


def _chunk(row: Sequence[object]) -> LogChunk:
    chunk = LogChunk._make(row)
    return chunk._replace(text=bytes(chunk.text))


def remove_of_runs(database: Database, cursor: Cursor, run_ids: Collection[int]) -> int:
    """Remove the logs of these runs, in a transaction of the caller's."""
    table = database.tables.operating["log_chunk"]
    return database.change(cursor, delete(table).where(table.c.run_id.in_(run_ids)))


def with_logs(database: Database, cursor: Cursor, run_ids: Collection[int]) -> list[int]:
    """Return which of these runs have logs."""
    c = database.tables.operating["log_chunk"].c
    query = select(c.run_id).where(c.run_id.in_(run_ids)).group_by(c.run_id).order_by(c.run_id)
    return [row[0] for row in database.rows(cursor, query)]


def remove_orphans(database: Database, place: LedgerConnection | Database, *, after: int, limit: int = 1000) -> int:
    """Remove logs without a run, among the next `limit` runs with logs after an id; return the last id, 0 at the end.

    A line that arrives just as its run is pruned leaves such a row, and nothing else would ever remove it.
    """
    table, run = database.tables.operating["log_chunk"], database.tables.run
    logged = select(table.c.run_id).where(table.c.run_id > after).group_by(table.c.run_id)
    page = logged.order_by(table.c.run_id).limit(limit)
    ids = place.read(lambda cursor: [row[0] for row in database.rows(cursor, page)])
    if not ids:
        return 0
    there = select(run.c.id).where(run.c.id.in_(ids))
    gone = set(ids) - place.read(lambda cursor: {row[0] for row in database.rows(cursor, there)})
    if gone:
        orphans = delete(table).where(table.c.run_id.in_(sorted(gone)), ~exists().where(run.c.id == table.c.run_id))
        place.write(lambda cursor: database.change(cursor, orphans))
    return ids[-1] if len(ids) == limit else 0
