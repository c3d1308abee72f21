"""The identity of a ledger: what its row of `identity` records, what its database shows, and how to reconcile the two.

A ledger that was restored from a dump, or copied, has the rows of another one. Then the evidence recorded about its
database (`Dialect.evidence`) differs from what is found; see `fencepost.core.restored` for the rules.

**Promises.** The first node that checks records the evidence. The time of the last sign of life (`beat`) never falls,
whatever the clock does. If a node knows more than the ledger, the ledger is advanced in one transaction: ids are never
assigned again, and the due times of each schedule become one skipped run, with their range and count.

**Not promised.** That keys of requests made after the dump are known: their runs are lost. That a physical restore is
detected if no node was alive throughout it: then no process knows more than the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from sqlalchemy import func, or_, select, update

from fencepost.core.noted import Noted
from fencepost.core.restored import Evidence, Memory
from fencepost.errors import InvalidSchedule
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.identity import identity
from fencepost.ledger.journal import About, note
from fencepost.ledger.schedule_rows import DUES, ScheduleChange, StoredSchedule, every_row, locked_row

UNKNOWN = "restored: unknown"
_IDENTITY = "SELECT i.id, i.evidence, i.era, i.beat_at, i.held_why, {clock} FROM {identity} i"
_PLANNED = "SELECT s.id, s.planned_through FROM {schedule} s WHERE {texts:s.id}"
BEAT_EVERY_US = 10_000_000  # a node that finds the last sign of life older than this writes a new one


class LedgerStanding(NamedTuple):
    """What is recorded and what is found. `ledger` is what a node would remember of it."""

    noted: Evidence | None
    present: Evidence
    ledger: Memory
    held_why: str | None
    now_us: int

    @property
    def wants_beat(self) -> bool:
        """Whether a sign of life is due."""
        return self.now_us - self.ledger.beat_us >= BEAT_EVERY_US


def standing(database: Database, cursor: Cursor, watched: Collection[str] = ()) -> LedgerStanding:
    """Read the state of the ledger; `watched` are the schedules for which to return how far they are planned."""
    statements = statements_for(database)
    rows = statements.rows(cursor, _IDENTITY, *statements.clock())
    name, evidence, era, beat_at, held_why, now_us = rows[0] if rows else (*(None,) * 5, statements.now_us(cursor))
    present = database.dialect.evidence(cursor)
    top_id = database.dialect.top_id(cursor)
    ledger = Memory(name, era or 0, beat_at or 0, top_id, _planned(database, cursor, watched))
    return LedgerStanding(json.loads(evidence) if evidence else None, present, ledger, held_why, int(now_us))


def _planned(database: Database, cursor: Cursor, watched: Collection[str]) -> dict[str, int]:
    if not watched:
        return {}
    statements = statements_for(database)
    return {
        name: int(through) for name, through in statements.rows(cursor, _PLANNED, statements.texts(sorted(watched)))
    }


def note_evidence(database: Database, present: Evidence, connection: LedgerConnection | None = None) -> None:
    """Record what the database shows, unless evidence is recorded already."""
    identity(database)
    table = database.tables.identity
    change = update(table).where(table.c.evidence.is_(None)).values(evidence=json.dumps(dict(present), sort_keys=True))
    (connection or database).write(lambda cursor: database.change(cursor, change))


def beat(database: Database, connection: LedgerConnection | None = None) -> None:
    """Write a sign of life, unless another node has just done so."""
    table = database.tables.identity

    def work(cursor: Cursor) -> None:
        now_us = database.dialect.now_us(cursor)
        last_us = func.coalesce(table.c.beat_at, 0)
        is_old = last_us <= now_us - BEAT_EVERY_US
        database.change(cursor, update(table).where(is_old).values(beat_at=now_us))

    (connection or database).write(work)


def hold(database: Database, why: str, connection: LedgerConnection | None = None) -> None:
    """Stop planning and claiming, on all nodes, until a person decides."""
    table = database.tables.identity

    def work(cursor: Cursor) -> None:
        if database.change(cursor, update(table).where(table.c.held_why.is_(None)).values(held_why=why)):
            note(database, cursor, Noted.LEDGER_HELD, About(reason=why))

    (connection or database).write(work)


def advance(database: Database, memory: Memory, *, why: str, connection: LedgerConnection | None = None) -> None:
    """Advance the ledger to what a node remembers of it."""
    table = database.tables.identity

    def work(cursor: Cursor) -> None:
        database.rows(cursor, select(table.c.id).with_for_update())
        if (top_id := database.dialect.top_id(cursor)) is not None and (memory.top_id or 0) > top_id:
            database.dialect.raise_ids(cursor, memory.top_id or 0)
        skipped = _skip_known(database, cursor, memory.planned)
        last_us = func.coalesce(table.c.beat_at, 0)
        database.change(cursor, update(table).where(last_us < memory.beat_us).values(beat_at=memory.beat_us))
        detail = {"schedules": skipped, "ids_through": memory.top_id}
        note(database, cursor, Noted.LEDGER_ADVANCED, About(reason=why, detail=detail))

    (connection or database).write(work)


def _skip_known(database: Database, cursor: Cursor, planned: Mapping[str, int]) -> int:
    """Skip the due times that a node has planned and the ledger does not have; return for how many schedules."""
    change = ScheduleChange(database, cursor, DUES)
    c = database.tables.schedule.c
    query = select(c.id, c.planned_through).where(c.id.in_(sorted(planned)))
    behind = [name for name, through in database.rows(cursor, query) if through < planned[name]] if planned else []
    for name in sorted(behind):
        row = locked_row(database, cursor, name)
        if row is not None and row.planned_through < planned[name]:
            skip_through(change, row, planned[name])
    return len(behind)


def skip_through(
    change: ScheduleChange, row: StoredSchedule, until_us: int, why: str = UNKNOWN
) -> StoredSchedule | None:
    """Skip the due times of a schedule up to `until_us`; return None if this version cannot read the schedule."""
    try:
        return change.skip_through(row, until_us, why)
    except InvalidSchedule:
        return None


def every_schedule(database: Database, cursor: Cursor, now_us: int) -> list[StoredSchedule]:
    """Lock and return the schedules that are planned, or whose pause has ended by now, in the order of their ids."""
    c = database.tables.schedule.c
    is_planned = or_(c.paused_at.is_(None), c.paused_until <= now_us)
    query = every_row(database).where(c.deleted_at.is_(None), is_planned).order_by(c.id)
    return [StoredSchedule(*row) for row in database.rows(cursor, query.with_for_update())]


def pending(database: Database, now_us: int) -> Any:
    """Return the condition for runs that are available by `now_us` and queued, or wait for anything but a person."""
    c = database.tables.run.c
    waits = (c.state == "waiting") & (c.waits_for != "person")
    return or_(c.state == "queued", waits) & (c.available_at <= now_us)
