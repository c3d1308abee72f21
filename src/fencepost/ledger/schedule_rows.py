"""Rows of schedules, and the changes a row can go through, each in somebody's transaction.

**Promises.** `planned_through` never falls, whatever is done to a schedule, so no due time is planned twice; a deleted
schedule leaves a tombstone that remembers it. No due time is lost in silence either: what a pause, a change or a
deletion passes over is one *skipped* run with its range and its count.

The rules of time come as `Dues`, two pure functions of a schedule's JSON; `DUES` are those of `core`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Select, select, update

from fencepost.core.identity import tick_key
from fencepost.core.runs import Requested
from fencepost.core.schedule import schedule_from_json
from fencepost.errors import NoSuchSchedule
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.journal import About, Act, note
from fencepost.ledger.recording import record
from fencepost.ledger.skipping import skip_ahead

CODE, RUNTIME = "code", "runtime"


class NewSchedule(NamedTuple):
    """A schedule to be. `spec` and `params` are JSON."""

    id: str
    job: str
    spec: str
    params: str = "{}"


class StoredSchedule(NamedTuple):
    """A schedule on record. `next_due_at` is None while it is paused, deleted or has no due time left."""

    id: str
    job: str
    spec: str
    params: str
    origin: str
    generation: int
    paused_at: int | None
    paused_by: str | None
    pause_reason: str | None
    deleted_at: int | None
    planned_through: int
    next_due_at: int | None
    created_at: int
    updated_at: int


class Missed(NamedTuple):
    """Due times that nobody planned: the first, the last and how many."""

    first_due_at: int
    due_at: int
    ticks: int


class Dues(NamedTuple):
    """The rules of time."""

    next_due: Callable[[str, int], int | None]  # of a spec, after an instant
    missed: Callable[[str, int, int], Missed | None]  # of a spec, after an instant, until another


def _next_due(spec: str, after_us: int) -> int | None:
    return schedule_from_json(spec).due_after(after_us)


def _missed(spec: str, after_us: int, until_us: int) -> Missed | None:
    schedule = schedule_from_json(spec)
    first, last = schedule.due_after(after_us), schedule.due_before(until_us + 1)
    if first is None or last is None or first > last:
        return None
    return Missed(first, last, schedule.count(after_us, until_us))


DUES = Dues(_next_due, _missed)


class Change:
    """Changes of schedules in one transaction, all at one instant."""

    def __init__(self, database: Database, cursor: Cursor, dues: Dues) -> None:
        self._database = database
        self._cursor = cursor
        self._dues = dues
        self._now_us = database.dialect.now_us(cursor)

    def insert(self, new: NewSchedule, origin: str, generation: int) -> bool:
        """Add a schedule that is planned from now on; False if the id has come to be meanwhile."""
        now_us = self._now_us
        values = new._asdict() | {
            "origin": origin,
            "generation": generation,
            "planned_through": now_us,
            "next_due_at": self._dues.next_due(new.spec, now_us),
            "created_at": now_us,
            "updated_at": now_us,
        }
        return self._database.dialect.insert_row(self._cursor, self._database.tables.schedule, values)

    def rewrite(self, row: StoredSchedule, new: NewSchedule, origin: str, generation: int) -> None:
        """Make a schedule what `new` says; what its old form has missed until now is skipped, unless it was deleted."""
        through_us = row.planned_through
        values: dict[str, Any] = new._asdict() | {"origin": origin, "generation": max(generation, row.generation)}
        is_paused = row.paused_at is not None
        if row.deleted_at is not None:
            through_us = max(through_us, self._now_us)
            values |= {"deleted_at": None, "created_at": self._now_us}
            if RUNTIME in (origin, row.origin):  # another schedule under the same id; a deploy's is the same
                values, is_paused = values | _NOT_PAUSED, False
        elif (row.spec, row.job) != (new.spec, new.job):
            through_us = self._pass_over(row, "paused" if is_paused else "schedule changed")
        values["planned_through"] = through_us
        values["next_due_at"] = None if is_paused else self._dues.next_due(new.spec, through_us)
        self._update(row, values)

    def resume(self, row: StoredSchedule) -> None:
        """Plan it again, from now on."""
        through_us = self._pass_over(row, "paused")
        next_due_at = self._dues.next_due(row.spec, through_us)
        self._update(row, _NOT_PAUSED | {"planned_through": through_us, "next_due_at": next_due_at})

    def bury(self, row: StoredSchedule, generation: int) -> None:
        """Leave a tombstone."""
        skip_ahead(self._database, self._cursor, row.id, now_us=self._now_us, why="schedule deleted")
        through_us = self._pass_over(row, "paused" if row.paused_at is not None else "schedule deleted")
        gone = {"deleted_at": self._now_us, "next_due_at": None, "generation": generation}
        self._update(row, gone | {"planned_through": through_us})

    def raise_generation(self, row: StoredSchedule, generation: int) -> None:
        """Note that a newer deploy has it, too."""
        if row.generation < generation:
            self._update(row, {"generation": generation})

    def note(self, act: Act, job: str, schedule_id: str, generation: int) -> None:
        """Write down what a deploy did."""
        about = About(job=job, schedule=schedule_id, reason=f"deploy of generation {generation}")
        note(self._database, self._cursor, act, about)

    def _update(self, row: StoredSchedule, values: Mapping[str, Any]) -> None:
        update_row(self._database, self._cursor, row.id, {**values, "updated_at": self._now_us})

    def _type_of(self, job: str) -> str:
        table = self._database.tables.job
        found = self._database.rows(self._cursor, select(table.c.type).where(table.c.name == job))
        return found[0][0] if found else "scheduled"

    def _pass_over(self, row: StoredSchedule, why: str) -> int:
        """Record the due times from where it was planned through until now as skipped; return where that leads."""
        missed = self._dues.missed(row.spec, row.planned_through, self._now_us)
        if missed is not None:
            record(self._database, self._cursor, [_skipped(row, missed, type=self._type_of(row.job), why=why)])
        return max(row.planned_through, self._now_us)


_NOT_PAUSED: dict[str, Any] = {"paused_at": None, "paused_by": None, "pause_reason": None}


def _skipped(row: StoredSchedule, missed: Missed, *, type: str, why: str) -> Requested:
    return Requested(
        job=row.job,
        type=type,
        params=row.params,
        origin_key=tick_key(row.id, missed.due_at),
        schedule=row.id,
        first_due_at_us=missed.first_due_at,
        due_at_us=missed.due_at,
        ticks=missed.ticks,
        window_end_us=missed.due_at,
        generation=row.generation,
        state="skipped",
        why=why,
    )


def update_row(database: Database, cursor: Cursor, schedule_id: str, values: Mapping[str, Any]) -> None:
    """Change one row."""
    table = database.tables.schedule
    database.change(cursor, update(table).where(table.c.id == schedule_id).values(dict(values)))


def every_row(database: Database) -> Select[Any]:
    """Select whole rows."""
    return select(*(database.tables.schedule.c[name] for name in StoredSchedule._fields))


def locked_row(database: Database, cursor: Cursor, schedule_id: str) -> StoredSchedule | None:
    """Return a row, also a tombstone, that nobody else can change meanwhile; None if there is none."""
    query = every_row(database).where(database.tables.schedule.c.id == schedule_id).with_for_update()
    found = database.rows(cursor, query)
    return StoredSchedule(*found[0]) if found else None


def known_row(database: Database, cursor: Cursor, schedule_id: str) -> StoredSchedule:
    """Return such a row, or raise `NoSuchSchedule`."""
    row = locked_row(database, cursor, schedule_id)
    if row is None:
        raise NoSuchSchedule(schedule_id)
    return row


def living_row(database: Database, cursor: Cursor, schedule_id: str, *, for_update: bool = False) -> StoredSchedule:
    """Return a row that is not deleted, or raise `NoSuchSchedule`."""
    query = every_row(database).where(database.tables.schedule.c.id == schedule_id)
    found = database.rows(cursor, query.with_for_update() if for_update else query)
    row = StoredSchedule(*found[0]) if found else None
    if row is None or row.deleted_at is not None:
        raise NoSuchSchedule(schedule_id)
    return row
