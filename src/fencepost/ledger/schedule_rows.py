"""Rows of schedules, and the changes to a row, each in the transaction of the caller.

**Promises.** `planned_through` never falls, whatever happens to a schedule, so no due time is planned twice; a deleted
schedule leaves a tombstone that keeps it. No due time is lost without a trace either. Due times that a pause, a change
or a deletion passes over become one *skipped* run, with their range and count. Due times between a change and the time
up to which the old form was planned ahead are planned together with the change (`replanning`).

A schedule is planned from the moment at which it is created or changed. Instants that are listed explicitly (``at(…)``)
also run if they passed within the job's grace before that: a deploy that took a little longer than expected does not
lose them. Earlier ones never run, and are recorded as skipped.

The rules of time are passed as `DueRules`, pure functions of a schedule's JSON; `DUES` are those of `core`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Select, select, update

from fencepost.core.identity import tick_key
from fencepost.core.misfire import Misfire
from fencepost.core.noted import Noted
from fencepost.core.policy import Policy
from fencepost.core.runs import Requested
from fencepost.core.schedule import schedule_from_json, window_start
from fencepost.core.schedules.at import At
from fencepost.core.search_keys import search_keys
from fencepost.core.tick import spelled_us
from fencepost.core.ticking import Ticking
from fencepost.errors import InvalidPolicy, NoSuchSchedule
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.journal import About, note
from fencepost.ledger.recording import record
from fencepost.ledger.replanning import plan_again
from fencepost.ledger.run_rows import HORIZON_US
from fencepost.ledger.search_keys import names_in
from fencepost.ledger.skipping import skip_ahead

CODE, RUNTIME = "code", "runtime"
_BEFORE_ALL = -1  # before every instant: these begin with 1970


class NewSchedule(NamedTuple):
    """A schedule to create. `spec` and `params` are JSON."""

    id: str
    job: str
    spec: str
    params: str = "{}"


class StoredSchedule(NamedTuple):
    """A schedule as stored. `next_due_at` is None while it is paused or deleted, or if it has no due time left.

    `no_node_since`: it is not planned, because no living node has had its job since then. `paused_until`: when the
    pause ends by itself. It says nothing while `paused_at` is None: versions before it leave it when they resume.
    """

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
    no_node_since: int | None = None
    paused_until: int | None = None

    def has_ended_pause(self, now_us: int) -> bool:
        """Whether it is paused, and the end of its pause has come."""
        return self.paused_at is not None and self.paused_until is not None and self.paused_until <= now_us


class MissedTicks(NamedTuple):
    """Due times that were not planned: the first, the last, their number, and the start of the first one's window."""

    first_due_at: int
    due_at: int
    ticks: int
    window_start: int | None


class DueRules(NamedTuple):
    """The rules of time."""

    next_due: Callable[[str, int], int | None]  # the first due time of a spec after an instant
    missed: Callable[[str, int, int], MissedTicks | None]  # those of a spec after one instant and until another
    names_instants: Callable[[str], bool]  # whether a spec lists its due times explicitly


def _next_due(spec: str, after_us: int) -> int | None:
    return schedule_from_json(spec).due_after(after_us)


def _missed(spec: str, after_us: int, until_us: int) -> MissedTicks | None:
    schedule = schedule_from_json(spec)
    first, last = schedule.due_after(after_us), schedule.due_before(until_us + 1)
    if first is None or last is None or first > last:
        return None
    return MissedTicks(first, last, schedule.count(after_us, until_us), window_start(schedule, first))


def _names_instants(spec: str) -> bool:
    return isinstance(schedule_from_json(spec), At)


DUES = DueRules(_next_due, _missed, _names_instants)


class ScheduleChange:
    """Changes of schedules in one transaction, all dated with the same instant."""

    def __init__(self, database: Database, cursor: Cursor, dues: DueRules, *, why: str = "") -> None:
        self._database = database
        self._cursor = cursor
        self._dues = dues
        self._why = why
        self._has_notified = False
        self._now_us = database.dialect.now_us(cursor)

    @property
    def now_us(self) -> int:
        """The instant of these changes."""
        return self._now_us

    def insert(self, new: NewSchedule, origin: str, generation: int) -> bool:
        """Add a schedule that is planned from now on; return False if the id exists by now."""
        begin_us = self._begin(new)
        next_due_at = self._dues.next_due(new.spec, begin_us)
        values = new._asdict() | {
            "origin": origin,
            "generation": generation,
            "planned_through": begin_us,
            "next_due_at": next_due_at,
            "created_at": self._now_us,
            "updated_at": self._now_us,
        }
        is_new = self._database.dialect.insert_row(self._cursor, self._database.tables.schedule, values)
        if is_new:
            self._skip_passed_instants(new, generation, _BEFORE_ALL, begin_us)
            self._notify(next_due_at)
        return is_new

    def rewrite(self, row: StoredSchedule, new: NewSchedule, origin: str, generation: int) -> None:
        """Change a schedule to `new`. Due times that its old form missed are skipped, unless it was deleted."""
        row = self.end_pause(row)
        through_us = row.planned_through
        values: dict[str, Any] = new._asdict() | {"origin": origin, "generation": max(generation, row.generation)}
        is_paused = row.paused_at is not None
        if row.deleted_at is not None:
            through_us = self._begin_again(row, new)
            values |= {"deleted_at": None, "created_at": self._now_us}
            if RUNTIME in (origin, row.origin):  # another schedule under the same id; a deploy's is the same
                values, is_paused = values | _NOT_PAUSED, False
        elif (row.spec, row.job) != (new.spec, new.job):
            has_missed = self._skip_missed(row, "paused" if is_paused else "schedule changed")
            through_us = max(through_us, self._now_us) if has_missed or is_paused else self._begin_again(row, new)
        if row.deleted_at is not None or (row.spec, row.job) != (new.spec, new.job):
            which = Ticking(*new, origin=origin, generation=values["generation"], policy=self._policy(new.job))
            self._plan_again(which, row.planned_through, is_paused=is_paused)
        values["planned_through"] = through_us
        values["next_due_at"] = None if is_paused else self._dues.next_due(new.spec, through_us)
        self._update(row, values)
        self._notify(values["next_due_at"])

    def rename(self, row: StoredSchedule, job: str) -> StoredSchedule:
        """Assign the schedule to the same job under its new name; no due time is missed. Return the new row."""
        self._update(row, {"job": job})
        return row._replace(job=job)

    def resume(self, row: StoredSchedule) -> StoredSchedule:
        """Plan the schedule again, from now on, or from the end of its pause if that has passed. Return the new row.

        What was due after that end was not missed because of the pause: the misfire policy decides about it.
        """
        ended_us = self._now_us if row.paused_until is None else min(row.paused_until, self._now_us)
        missed = self._dues.missed(row.spec, row.planned_through, ended_us)
        self._skip(NewSchedule(row.id, row.job, row.spec, row.params), row.generation, missed, "paused")
        through_us = max(row.planned_through, ended_us)
        next_due_at = self._dues.next_due(row.spec, through_us)
        values = _NOT_PAUSED | {"planned_through": through_us, "next_due_at": next_due_at}
        self._update(row, values)
        self._notify(next_due_at)
        return row._replace(**values)

    def end_pause(self, row: StoredSchedule) -> StoredSchedule:
        """Resume a schedule whose pause has ended by itself, and note it. Return its row as it is now."""
        if row.deleted_at is not None or not row.has_ended_pause(self._now_us):
            return row
        note(self._database, self._cursor, Noted.SCHEDULE_RESUMED, _ended_pause(row))
        return self.resume(row)

    def bury(self, row: StoredSchedule, generation: int) -> None:
        """Delete the schedule; its row stays as a tombstone."""
        row = self.end_pause(row)
        skip_ahead(self._database, self._cursor, row.id, now_us=self._now_us, why="schedule deleted")
        self._skip_missed(row, "paused" if row.paused_at is not None else "schedule deleted")
        gone = {"deleted_at": self._now_us, "next_due_at": None, "generation": generation}
        self._update(row, gone | {"planned_through": max(row.planned_through, self._now_us)})

    def skip_through(self, row: StoredSchedule, until_us: int, why: str) -> StoredSchedule:
        """Skip the due times up to `until_us`, and plan from there on. Return the new row."""
        missed = self._dues.missed(row.spec, row.planned_through, until_us)
        through_us = max(row.planned_through, until_us)
        is_planned = row.paused_at is None and row.deleted_at is None
        next_due_at = self._dues.next_due(row.spec, through_us) if is_planned else None
        self._skip(NewSchedule(row.id, row.job, row.spec, row.params), row.generation, missed, why)
        values: dict[str, Any] = {"planned_through": through_us, "next_due_at": next_due_at}
        self._update(row, values)
        return row._replace(**values)

    def raise_generation(self, row: StoredSchedule, generation: int) -> None:
        """Record that a newer deploy has the schedule, too."""
        if row.generation < generation:
            self._update(row, {"generation": generation})

    def note(self, act: Noted, job: str, schedule_id: str) -> None:
        """Add a journal entry for a change by a deploy."""
        note(self._database, self._cursor, act, About(job=job, schedule=schedule_id, reason=self._why))

    def _update(self, row: StoredSchedule, values: Mapping[str, Any]) -> None:
        update_row(self._database, self._cursor, row.id, {**values, "updated_at": self._now_us})

    def _notify(self, next_due_at: int | None) -> None:
        """Notify sleeping nodes of a due time that no look has shown them: the node that plans it may be another."""
        if next_due_at is not None and not self._has_notified:
            self._has_notified = True
            statements_for(self._database.connect("words")).notify(self._cursor)

    def _job(self, name: str) -> tuple[str, int, tuple[str, ...]]:
        """Return the type, the grace and the names of the search keys of a job as stored."""
        table = self._database.tables.job
        found = self._database.rows(self._cursor, select(table.c.type, table.c.policy).where(table.c.name == name))
        if not found:
            return "scheduled", Misfire().grace_us, ()
        batch_type, policy = found[0]
        return batch_type, _grace_us(policy), names_in(policy)

    def _policy(self, name: str) -> str:
        table = self._database.tables.job
        found = self._database.rows(self._cursor, select(table.c.policy).where(table.c.name == name))
        return found[0][0] if found else "{}"

    def _begin(self, new: NewSchedule) -> int:
        """Return the instant from which a new form is planned."""
        if not self._dues.names_instants(new.spec):
            return self._now_us
        _, grace_us, _ = self._job(new.job)
        return max(self._now_us - grace_us - 1, _BEFORE_ALL)

    def _begin_again(self, row: StoredSchedule, new: NewSchedule) -> int:
        begin_us = max(row.planned_through, self._begin(new))
        self._skip_passed_instants(new, row.generation, row.planned_through, begin_us)
        return begin_us

    def _plan_again(self, which: Ticking, through_us: int, *, is_paused: bool) -> None:
        """Plan a new form up to where the old one is planned, if that is in the future."""
        if through_us > self._now_us:
            begin_us = self._begin(NewSchedule(which.id, which.job, which.spec, which.params))
            stretch_us = (max(begin_us, through_us - HORIZON_US), through_us)
            plan_again(self._database, self._cursor, which, stretch_us, skip_why="paused" if is_paused else None)

    def _skip_passed_instants(self, new: NewSchedule, generation: int, after_us: int, until_us: int) -> None:
        """Record the explicitly listed instants of a new form that had passed before it was created, as skipped."""
        if self._dues.names_instants(new.spec):
            why = "the time had passed when the schedule was made"
            self._skip(new, generation, self._dues.missed(new.spec, after_us, until_us), why)

    def _skip_missed(self, row: StoredSchedule, why: str) -> bool:
        """Record the due times since `planned_through` as skipped; return whether there were any."""
        missed = self._dues.missed(row.spec, row.planned_through, self._now_us)
        self._skip(NewSchedule(row.id, row.job, row.spec, row.params), row.generation, missed, why)
        return missed is not None

    def _skip(self, which: NewSchedule, generation: int, missed: MissedTicks | None, why: str) -> None:
        if missed is not None:
            batch_type, _, names = self._job(which.job)
            skipped = _skipped(which, missed, type=batch_type, generation=generation, why=why)
            keys = search_keys(names, json.loads(which.params)) if names else ()
            record(self._database, self._cursor, [skipped._replace(search=keys)])


_NOT_PAUSED: dict[str, Any] = {"paused_at": None, "paused_by": None, "pause_reason": None, "paused_until": None}


def _ended_pause(row: StoredSchedule) -> About:
    by = f" by {row.paused_by}" if row.paused_by else ""
    because = f": {row.pause_reason}" if row.pause_reason else ""
    words = f"its pause{by} ended by itself at {spelled_us(row.paused_until or 0)}{because}"
    return About(job=row.job, schedule=row.id, reason=words)


def _grace_us(policy: str) -> int:
    try:
        return Misfire.of(grace=Policy.from_json(policy).grace_s).grace_us
    except InvalidPolicy:  # of a later release: the planner reports it
        return Misfire().grace_us


def _skipped(which: NewSchedule, missed: MissedTicks, *, type: str, generation: int, why: str) -> Requested:
    return Requested(
        job=which.job,
        type=type,
        params=which.params,
        origin_key=tick_key(which.id, missed.due_at),
        schedule=which.id,
        first_due_at_us=missed.first_due_at,
        due_at_us=missed.due_at,
        ticks=missed.ticks,
        window_start_us=missed.window_start,
        window_end_us=missed.due_at,
        generation=generation,
        state="skipped",
        why=why,
    )


def update_row(database: Database, cursor: Cursor, schedule_id: str, values: Mapping[str, Any]) -> None:
    table = database.tables.schedule
    database.change(cursor, update(table).where(table.c.id == schedule_id).values(dict(values)))


def every_row(database: Database) -> Select[Any]:
    """Return a query for whole rows."""
    return select(*(database.tables.schedule.c[name] for name in StoredSchedule._fields))


def locked_row(database: Database, cursor: Cursor, schedule_id: str) -> StoredSchedule | None:
    """Lock and return a row, which may be a tombstone; None if there is none."""
    query = every_row(database).where(database.tables.schedule.c.id == schedule_id).with_for_update()
    found = database.rows(cursor, query)
    return StoredSchedule(*found[0]) if found else None


def known_row(database: Database, cursor: Cursor, schedule_id: str) -> StoredSchedule:
    """Lock and return a row, which may be a tombstone, or raise `NoSuchSchedule`."""
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
