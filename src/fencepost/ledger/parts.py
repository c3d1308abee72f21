"""Parts: the runs for the partitions of a bulk job's run, found by their origin keys.

::

    part:<run>:<step>:<partition>:<try>

The parent enqueues them, any node executes them, and the parent may take back a part that has not started.

Parts of the same partition, even of different parents, exclude each other by its exclusive key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import and_, select, update

from fencepost.core.identity import fitted
from fencepost.core.states import RunState, WaitsFor
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.history import of_jobs

_KEYS_PER_QUERY = 500  # bounds the length of a statement


class Part(NamedTuple):
    """A run that executes a partition."""

    run_id: int
    origin_key: str
    state: str
    error: str | None
    progress_note: str | None


def part_key(parent_id: int, step: str, number: int, turn: int) -> str:
    """Return the origin key of a partition's run; `turn` counts the earlier runs that did not complete it."""
    return fitted(f"part:{parent_id}:{step}:{number}:{turn}")


def parts(database: Database, keys: Sequence[str]) -> dict[str, Part]:
    """Return the runs with these origin keys, by key."""
    c = database.tables.run.c
    columns = (c.id, c.origin_key, c.state, c.error, c.progress_note)

    def ask(cursor: Cursor) -> list[Part]:
        found = []
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            query = select(*columns).where(c.origin_key.in_(keys[start : start + _KEYS_PER_QUERY]))
            found += [Part(*row) for row in database.rows(cursor, query)]
        return found

    return {each.origin_key: each for each in database.read(ask)}


def parts_of(database: Database, parent_id: int, *, jobs: Collection[str] | None = None) -> list[Part]:
    """Return the runs of all partitions of a run, in the order of their creation."""
    c = database.tables.run.c
    # Keys are compared byte by byte, so those with the prefix lie between it and the same text with the next character.
    prefix = f"part:{parent_id}:"
    query = select(c.id, c.origin_key, c.state, c.error, c.progress_note).where(
        c.origin_key >= prefix, c.origin_key < f"part:{parent_id};"
    )
    if jobs is not None:
        query = query.where(of_jobs(database, jobs))
    return sorted(database.read(lambda cursor: [Part(*row) for row in database.rows(cursor, query)]))


def part_place(origin_key: str) -> tuple[str, int] | None:
    """Return the step and partition of a part; None if its key was shortened."""
    words = origin_key.split(":", 2)[-1].rsplit(":", 2)
    return (words[0], int(words[1])) if len(words) == 3 and words[1].isdecimal() and words[2].isdecimal() else None


def under_way(database: Database, job: str, keys: Sequence[str]) -> set[str]:
    """Return those of these exclusive keys that a run holds, or that a run of the job is queued or waiting for."""
    c, x = database.tables.run.c, database.tables.exclusive.c
    waits = and_(c.state == RunState.WAITING.value, c.waits_for == WaitsFor.KEY.value)

    def ask(cursor: Cursor) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            some = keys[start : start + _KEYS_PER_QUERY]
            queries = (
                select(x.key).where(x.key.in_(some), x.run_id.is_not(None)),
                select(c.exclusive_key).where(
                    c.state == RunState.QUEUED.value, c.job == job, c.exclusive_key.in_(some)
                ),
                select(c.exclusive_key).where(waits, c.job == job, c.exclusive_key.in_(some)),
            )
            found |= {row[0] for query in queries for row in database.rows(cursor, query)}
        return found

    return database.read(ask)


def take_back(database: Database, part: Part, *, why: str) -> bool:
    """End a part that is due and has not started as skipped; return False if it, or its partition, is being executed.

    Other parts that are queued for the same partition, by an earlier parent, end with it.
    """
    c, x = database.tables.run.c, database.tables.exclusive.c
    is_queued = c.state == RunState.QUEUED.value

    def work(cursor: Cursor) -> bool:
        now = database.dialect.now()
        found = database.rows(cursor, select(c.job, c.exclusive_key).where(c.id == part.run_id))
        # Read without a lock: keys are locked before runs, and a run that takes the key now finds the checkpoint moved.
        if not found or database.rows(cursor, select(x.key).where(x.key == found[0][1], x.run_id.is_not(None))):
            return False
        values = {"state": RunState.SKIPPED.value, "waits_for": None, "why": why, "ended_at": now}
        end = update(database.tables.run).values(values)
        if database.change(cursor, end.where(c.id == part.run_id, is_queued, c.available_at <= now)) != 1:
            return False
        job, key = found[0]
        database.change(cursor, end.where(is_queued, c.job == job, c.exclusive_key == key))
        return True

    return database.write(work)
