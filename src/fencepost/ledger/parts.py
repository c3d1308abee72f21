"""Parts: the runs that a run of a bulk job has made of its partitions, found by their origin keys.

::

    part:<run>:<step>:<partition>:<try>

The parent enqueues them, any node executes them, and the parent may take one back that nobody has begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import and_, or_, select, update

from fencepost.core.identity import fitted
from fencepost.core.states import RunState, WaitsFor
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor


class Part(NamedTuple):
    """A run that executes a partition."""

    run_id: int
    origin_key: str
    state: str
    error: str | None
    progress_note: str | None


def part_key(parent_id: int, step: str, number: int, turn: int) -> str:
    """Return the origin key of a partition's run; `turn` counts those that ended before it was done."""
    return fitted(f"part:{parent_id}:{step}:{number}:{turn}")


def parts(database: Database, keys: Sequence[str]) -> dict[str, Part]:
    """Return the runs with these origin keys, by key."""
    c = database.tables.run.c
    columns = (c.id, c.origin_key, c.state, c.error, c.progress_note)

    def ask(cursor: Cursor) -> list[Part]:
        found = []
        for start in range(0, len(keys), 500):
            query = select(*columns).where(c.origin_key.in_(keys[start : start + 500]))
            found += [Part(*row) for row in database.rows(cursor, query)]
        return found

    return {each.origin_key: each for each in database.read(ask)}


def parts_of(database: Database, parent_id: int) -> list[Part]:
    """Return the runs of all partitions of a run, in the order in which they were made."""
    c = database.tables.run.c
    # Keys are compared byte by byte, so those that begin with the prefix lie between it and its next one.
    prefix = f"part:{parent_id}:"
    query = select(c.id, c.origin_key, c.state, c.error, c.progress_note).where(
        c.origin_key >= prefix, c.origin_key < f"part:{parent_id};"
    )
    return sorted(database.read(lambda cursor: [Part(*row) for row in database.rows(cursor, query)]))


def part_place(origin_key: str) -> tuple[str, int] | None:
    """Return which step and partition a part's run is for; None of a key so long that it was cut."""
    words = origin_key.split(":", 2)[-1].rsplit(":", 2)
    return (words[0], int(words[1])) if len(words) == 3 and words[1].isdecimal() and words[2].isdecimal() else None


def take_back(database: Database, run_id: int, *, why: str) -> bool:
    """End a part that nobody has begun as skipped; False if somebody has."""
    c = database.tables.run.c
    is_idle = or_(
        c.state == RunState.QUEUED.value,
        and_(c.state == RunState.WAITING.value, c.waits_for == WaitsFor.KEY.value),
    )

    def work(cursor: Cursor) -> int:
        now = database.dialect.now()
        values = {"state": RunState.SKIPPED.value, "waits_for": None, "why": why, "ended_at": now}
        return database.change(cursor, update(database.tables.run).where(c.id == run_id, is_idle).values(values))

    return database.write(work) == 1
