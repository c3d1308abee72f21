"""The rows of figures: what each node counted of each job in each hour of the ledger's clock.

A node writes rows under its own id alone, each as a whole, so a write whose reply was lost can be repeated. Hours that
ended `MERGED_AFTER_US` ago are merged to one row per job and hour, under the id `MERGED`: otherwise every node that
ever ran a job would leave a row for every hour. No node writes rows that old (`engine.figure_writer`).

**Promises.** What is read is bounded: at most `MOST_ROWS` rows, the newest. Rows are kept for `KEPT_US`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import delete, literal_column, select, tuple_, update

from fencepost.core.figures import HOUR_US, Figures, hour_of
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor, Dialect

KEPT_US = 35 * 24 * HOUR_US  # five weeks: the same day of the week can be compared four times
MERGED_AFTER_US = 2 * HOUR_US  # a node has half an hour less to write figures of an hour that is over (`TOO_LATE_US`)
_MERGED_WITHIN_US = 3 * 24 * HOUR_US  # older rows that nobody has merged stay as they are, so that few are looked at
MERGED = ""
MOST_ROWS = 50_000  # of more, the oldest hours are left out, and the answer says from when on it counts
_ROW = "(%s, %s, %s, %s, %s)"
_COLUMNS = ("job", "hour", "node", "outcomes", "histogram")


class FigureRow(NamedTuple):
    """What a node counted of a job in an hour, as it is stored."""

    job: str
    hour: int
    node: str
    outcomes: str
    histogram: str

    def figures(self) -> Figures:
        """Return what it says."""
        return Figures.read(self.outcomes, self.histogram)


def put(connection: LedgerConnection, rows: Sequence[FigureRow]) -> None:
    """Write rows, in place of those that are there: one transaction with one statement."""
    connection.write(lambda cursor: _put(connection.dialect, cursor, rows))


def _put(dialect: Dialect, cursor: Cursor, rows: Sequence[FigureRow]) -> None:
    names = ", ".join(map(dialect.words.identifier_preparer.quote, _COLUMNS))
    into = f"INSERT INTO {dialect.table('job_hour')} ({names}) VALUES {', '.join([_ROW] * len(rows))}"  # noqa: S608 - no value
    if dialect.spelling.has_insert_ignore:
        sql = f"{into} ON DUPLICATE KEY UPDATE outcomes = VALUES(outcomes), histogram = VALUES(histogram)"
    else:
        sql = f"{into} ON CONFLICT (job, hour, node) DO UPDATE SET outcomes = excluded.outcomes, "
        sql += "histogram = excluded.histogram"
    cursor.execute(sql.replace("%s", dialect.mark), [value for row in rows for value in row])


def figures_since(
    database: Database, jobs: Collection[str], since_us: int, *, until_us: int | None = None, limit: int = MOST_ROWS
) -> tuple[list[FigureRow], bool]:
    """Return the rows of these jobs from the hour of an instant on, newest first, and whether older ones were left.

    With `until_us`, none of later hours: a clock that was ahead leaves such.
    """
    if not jobs:
        return [], False
    c = database.tables.operating["job_hour"].c
    query = select(*(c[name] for name in _COLUMNS)).where(c.job.in_(sorted(jobs)), c.hour >= hour_of(since_us))
    if until_us is not None:
        query = query.where(c.hour <= until_us)
    # Not by the hour itself: its index would lead through the rows of all jobs.
    query = query.order_by((c.hour + literal_column("0")).desc()).limit(limit + 1)
    found = database.read(lambda cursor: [FigureRow(*row) for row in database.rows(cursor, query)])
    return found[:limit], len(found) > limit


# -- with the job, and with time


def move_figures(database: Database, cursor: Cursor, old: str, new: str) -> int:
    """Move the figures of a job to its new name, and add them to what is there; return how many rows were moved."""
    table = database.tables.operating["job_hour"]
    there = {(hour, node) for hour, node in database.rows(cursor, _keys(table, new))}
    twice = [key for key in database.rows(cursor, _keys(table, old)) if tuple(key) in there]
    for hour, node in twice:
        _add_up(database, cursor, (old, new), hour, node)
    return len(twice) + database.change(cursor, update(table).where(table.c.job == old).values(job=new))


def _keys(table: Any, job: str) -> Any:
    return select(table.c.hour, table.c.node).where(table.c.job == job)


def _add_up(database: Database, cursor: Cursor, names: tuple[str, str], hour: int, node: str) -> None:
    table = database.tables.operating["job_hour"]
    here = (table.c.hour == hour, table.c.node == node)
    query = select(*(table.c[name] for name in _COLUMNS)).where(table.c.job.in_(names), *here)
    whole = _total([FigureRow(*row) for row in database.rows(cursor, query)])
    database.change(cursor, delete(table).where(table.c.job == names[0], *here))
    _put(database.dialect, cursor, [FigureRow(names[1], hour, node, *whole.stored())])


def forget_figures(database: Database, cursor: Cursor, job: str) -> int:
    """Remove the figures of a job that is forgotten."""
    table = database.tables.operating["job_hour"]
    return database.change(cursor, delete(table).where(table.c.job == job))


def prune_figures(database: Database, place: LedgerConnection | Database, now_us: int, limit: int) -> int:
    """Remove a batch of rows that were kept long enough; return how many."""
    table = database.tables.operating["job_hour"]
    old = table.c.hour < now_us - KEPT_US
    query = select(table.c.job, table.c.hour, table.c.node).where(old).order_by(table.c.hour).limit(limit)

    def work(cursor: Cursor) -> int:
        keys = [tuple(row) for row in database.rows(cursor, query)]
        key = tuple_(table.c.job, table.c.hour, table.c.node)
        return database.change(cursor, delete(table).where(old, key.in_(keys))) if keys else 0

    return place.write(work)


def merge_figures(
    database: Database, place: LedgerConnection | Database, *, from_us: int = 0, limit: int = 500
) -> tuple[int, int]:
    """Merge a batch of rows of hours that are over; return how many, and from which hour on to look the next time.

    Nodes that do this at once wait for each other: their batches begin with the same row.
    """
    now_us = database.now_us(place if isinstance(place, LedgerConnection) else None)
    first_us = max(from_us, hour_of(now_us - _MERGED_WITHIN_US))
    last_us = hour_of(now_us - MERGED_AFTER_US)
    count = place.write(lambda cursor: _merge(database, cursor, first_us, last_us, limit))
    return count, first_us if count else last_us


def _merge(database: Database, cursor: Cursor, first_us: int, last_us: int, limit: int) -> int:
    table = database.tables.operating["job_hour"]
    c = table.c
    wanted = select(*(c[name] for name in _COLUMNS)).where(c.hour >= first_us, c.hour < last_us, c.node != MERGED)
    batch = wanted.order_by(c.hour, c.job, c.node).limit(limit).with_for_update()
    rows = [FigureRow(*row) for row in database.rows(cursor, batch)]
    if not rows:
        return 0
    by_key: dict[tuple[str, int], list[FigureRow]] = {}
    for row in rows:
        by_key.setdefault((row.job, row.hour), []).append(row)
    merged = select(*(c[name] for name in _COLUMNS)).where(
        c.node == MERGED, c.hour.in_({row.hour for row in rows}), c.job.in_({row.job for row in rows})
    )
    for row in (FigureRow(*found) for found in database.rows(cursor, merged.with_for_update())):
        if (row.job, row.hour) in by_key:
            by_key[row.job, row.hour].append(row)
    sums = [FigureRow(job, hour, MERGED, *_total(found).stored()) for (job, hour), found in by_key.items()]
    key = tuple_(c.job, c.hour, c.node)
    database.change(cursor, delete(table).where(key.in_([(row.job, row.hour, row.node) for row in rows])))
    _put(database.dialect, cursor, sums)
    return len(rows)


def _total(rows: Sequence[FigureRow]) -> Figures:
    whole = Figures.none()
    for row in rows:
        whole.add(row.figures())
    return whole
