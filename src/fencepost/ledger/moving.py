"""Renaming a job for good, by an operator: everything in the ledger under the old name gets the new one.

`fencepost.ledger.renaming` keeps the first name of a job wherever it is stored, for as long as the code has
``formerly``. Here that name is removed: afterwards, schedules, keys and runs, including ended ones, have the new name,
and the code needs no `formerly`. So no living node may have either name.

**Promises.** `planned_through` of schedules stays, so no due time is planned again. Runs are moved in batches, and the
rest in one transaction at the end, with a journal entry. An interrupted call can be repeated, and until it was, the
job cannot be renamed to anything else (`begun_renames`). Two jobs become one only if a person says so
(`fencepost.ledger.merging`): then each schedule that is deleted has an entry of its own, and those who had a permission
on the old name get none on the other job. Runs under a name that no job has any more join a job in the same way.

**Not promised.** That a request whose key was used before is recognized as the same one afterwards: it is refused as
another request under that key. Anything, if a node that has either name starts in the meantime.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import delete, select, update

from fencepost.core.identity import fitted, job_name
from fencepost.core.noted import Noted
from fencepost.errors import LedgerRefused, NoSuchJob
from fencepost.ledger.accounts import forget_permissions, move_permissions
from fencepost.ledger.begun_renames import (
    SUFFIXES,
    BegunRename,
    abouts,
    begin_rename,
    begun_renames,
    compare,
    end,
    refuse_begun,
    take_back,
)
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, statements_for
from fencepost.ledger.figures import move_figures
from fencepost.ledger.former_names import goes_on, heirs_of, names_between, refuse_heirs, refuse_names
from fencepost.ledger.jobs import job as known_job
from fencepost.ledger.jobs import jobs
from fencepost.ledger.journal import About, audit, note
from fencepost.ledger.merging import refuse_merge, refuse_other_owner, refuse_schedules_of_others
from fencepost.ledger.nodes import living_nodes
from fencepost.ledger.renaming import formers
from fencepost.ledger.schedule_rows import CODE, DUES, ScheduleChange, StoredSchedule, every_row, locked_row, update_row

_BATCH = 2000  # runs per transaction: short locks
_RUNNING = "SELECT r.id FROM {run} r WHERE r.state = 'running' AND {was:r.job} = %s LIMIT 1"
_ANY = "SELECT r.id FROM {run} r WHERE r.job = %s LIMIT 1"
_FIND = "SELECT r.id, r.schedule, r.exclusive_key FROM {run} r WHERE r.job = %s"
_OF_SCHEDULES = "SELECT DISTINCT r.schedule FROM {run} r WHERE {texts:r.schedule}"
_FIND_TICKS = "SELECT r.id, r.schedule, r.exclusive_key FROM {run} r WHERE r.schedule = %s"
_FIND_KEYS = "SELECT r.id, r.schedule, r.exclusive_key FROM {run} r WHERE r.job = %s AND {texts:r.exclusive_key}"
_MOVE = "UPDATE {run} SET job = %s, schedule = %s, exclusive_key = %s WHERE id = %s"


class Renaming(NamedTuple):
    """The old name and the new one. `runtime` are the ids of schedules that were created at run time.

    `there`: which of the new names are on record already. `is_merge`: as another job, which the old one joins.
    `is_recorded`: there is a job of the old name. `begun`: what the ledger stores of it while it is under way. `heirs`:
    other jobs whose code says that they had one of the names; they were declared since the rename was begun. `between`:
    names that the job had between the two; keys, checkpoints and schedules have the first name, runs may have any.
    """

    old: str
    new: str
    runtime: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    is_merge: bool = False
    is_recorded: bool = True
    begun: BegunRename | None = None
    heirs: tuple[str, ...] = ()
    between: tuple[str, ...] = ()

    @property
    def own(self) -> tuple[str, ...]:
        """The names of the job itself, the old one first and the new one last."""
        return (self.old, *self.between, self.new)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The names of the job, and the additional ones of a bulk job, each as (old, new)."""
        return tuple((name + each, self.new + each) for name in self.own[:-1] for each in SUFFIXES)

    @property
    def names(self) -> frozenset[str]:
        """All of these names."""
        return frozenset(name for pair in self.pairs for name in pair)

    @property
    def keys(self) -> list[str]:
        """The exclusive keys that contain the old name."""
        return [f"job:{self.old}", *(f"job:{self.old}:{each}" for each in self.runtime)]

    def schedule(self, name: str | None) -> str | None:
        """Return the new id of a schedule. In code, the id of the first is the job's name; others append a number."""
        if name is None or name in self.runtime:
            return name
        first, _, number = name.partition(":")
        return self.new + name[len(first) :] if first == self.old and (not number or number.isdigit()) else name

    def key(self, name: str | None) -> str | None:
        """Return the new exclusive key of a run."""
        for key in self.keys:
            if name == fitted(key):
                return fitted(f"job:{self.new}{key.removeprefix(f'job:{self.old}')}")
        return name


class Renamed(NamedTuple):
    """How much was moved, and what the other job did not take over: ids of schedules, and a number of permissions."""

    schedules: int
    runs: int
    deleted: tuple[str, ...] = ()
    taken: int = 0


def renaming_of(
    database: Database,
    old: str,
    new: str,
    *,
    into_existing: bool = False,
    is_left: Callable[[], bool] = lambda: False,
) -> Renaming:
    """Return what is to be renamed, or raise: both names must fit what is stored, and no living node may have them.

    Where `new` is another job, with runs, schedules or permissions, raise unless `into_existing` is set. `is_left` says
    whether anything is left under the old name in databases of effects, if no job has that name: that may join a job.
    """
    recorded = jobs(database)
    known = {row.name: formers(row.policy) for row in recorded}
    if job_name(old) == job_name(new):
        raise LedgerRefused(f"job {old!r} already has that name")
    there = tuple(new + each for each in SUFFIXES if new + each in known)
    begun = begun_renames(database)
    before = next((each for each in begun if (each.old, each.new) == (old, new)), None)
    between = names_between(known, old, new) if before is None else before.between
    found = Renaming(old, new, (), there, is_recorded=old in known, between=between)
    found = found._replace(runtime=_runtime_schedules(database, found.own), heirs=tuple(heirs_of(known, found)))
    refuse_begun(begun, found.names, but=(old, new))
    if before is None:  # what was begun has to be completed, or nobody could do anything
        refuse_heirs(database, recorded, found)
    is_rest = not found.is_recorded and new in known and (_has_more(database, found) or is_left())
    refuse_names(known, old, new, is_known=before is not None or is_rest)
    if is_rest and before is None and not into_existing and known[new][:1] != (old,):
        _refuse_history(database, found, is_left)
    refuse_living(database, found)
    is_other = bool(there) and known.get(new, ())[:1] != (old,)
    if is_other and not into_existing and before is None and found.is_recorded:
        refuse_merge(database, old, [pair[1] for pair in found.pairs])
    refuse_schedules_of_others(database, found.own, found.schedule)
    was_said = into_existing or not found.is_recorded if before is None else before.is_merge
    return found._replace(is_merge=is_other and was_said)


def _refuse_history(database: Database, renaming: Renaming, is_left: Callable[[], bool]) -> None:
    """Refuse to add to a job what is left of a name that no job has, if nothing of it goes on.

    Then that job was forgotten rather than renamed: as runs of another job they would be counted, and repeated.
    """
    old, new = renaming.old, renaming.new
    if not goes_on(database, [name for name, _ in renaming.pairs], owner=old) and not is_left():
        raise LedgerRefused(
            f"no job has the name {old!r} any more: it was forgotten, or renamed before. All of its runs that are left "
            f"have ended; as runs of {new!r} they would be repeated and counted as its own, and nothing was renamed. "
            "Only if both are the same work, say so with --into-existing (into_existing=True)"
        )


def _has_more(database: Database, renaming: Renaming) -> bool:
    """Whether runs or schedules have the old name, though no job has it: as after renames that were cut off."""
    c, statements = database.tables.schedule.c, statements_for(database)
    owned = select(c.id).where(c.job == renaming.old, c.deleted_at.is_(None)).limit(1)

    def look(cursor: Cursor) -> bool:
        found = any(statements.rows(cursor, _ANY, old) for old, _ in renaming.pairs)
        return found or bool(database.rows(cursor, owned))

    return database.read(look)


def refuse_living(database: Database, renaming: Renaming) -> None:
    """Refuse a rename while a living node has either name."""
    for node in living_nodes(database):
        if has := sorted(renaming.names.union(renaming.heirs).intersection(node.jobs)):
            raise LedgerRefused(
                f"the living node {node.name} has job {has[0]!r}: stop the nodes that have either name first; or, "
                f"without stopping anything, deploy the new name with formerly={renaming.old!r} in the code"
            )


def begin_renaming(database: Database, renaming: Renaming, about: About) -> Renaming:
    """Store that it begins, before anything is changed, and return it with that.

    Whoever claims a run of the job from now on finds that it is being renamed. What was claimed just before is looked
    for once more: then it is refused, and not begun.
    """
    old, new, between = renaming.old, renaming.new, renaming.between
    begun = begin_rename(database, old, new, about, is_merge=renaming.is_merge, between=between)
    try:
        if renaming.is_recorded:
            known_job(database, renaming.old)
        refuse_living(database, renaming)
        refuse_running(database, renaming)
    except (LedgerRefused, NoSuchJob):
        take_back(database, begun, about)
        raise
    return renaming._replace(begun=begun)


def _runtime_schedules(database: Database, names: tuple[str, ...]) -> tuple[str, ...]:
    c = database.tables.schedule.c
    query = select(c.id).where(c.job.in_(names), c.origin != CODE, c.deleted_at.is_(None)).order_by(c.id)
    return tuple(row[0] for row in database.read(lambda cursor: database.rows(cursor, query)))


def rename(database: Database, renaming: Renaming, *, by: str, reason: str | None = None) -> Renamed:
    """Move everything in the ledger to the new name. Do the same in the databases of effects first."""
    connection = database.connect("renaming")
    statements = statements_for(connection)
    try:
        refuse_running(database, renaming)
        runs = sum(_move_runs(connection, statements, renaming, old, new) for old, new in renaming.pairs)
        about = About(job=renaming.new, by=by, reason=reason)
        return connection.write(partial(_moved, database, renaming, about, runs))
    finally:
        connection.rest()


def refuse_running(database: Database, renaming: Renaming) -> None:
    """Refuse a rename while a run of either name is under way."""
    statements = statements_for(database)
    for name in (each for pair in renaming.pairs for each in pair):
        found = database.read(lambda cursor, name=name: statements.rows(cursor, _RUNNING, name))  # type: ignore[misc]
        if found:
            raise LedgerRefused(f"run {found[0][0]} of job {name!r} has not ended: fencepost show {found[0][0]}")


def _move_runs(
    connection: LedgerConnection, statements: LedgerStatements, renaming: Renaming, old: str, new: str
) -> int:
    """Move runs until none is left; return their number.

    Runs of a schedule may have yet another job, and those that have the new name already, as code with `formerly` gave
    it to them, have keys with the first name.
    """
    count = _move_found(connection, statements, renaming, new, (_FIND, old))
    if new in renaming.there and not renaming.is_merge:
        keys = statements.texts([fitted(each) for each in renaming.keys])
        count += _move_found(connection, statements, renaming, new, (_FIND_KEYS, new, keys))
    if new == renaming.new:
        ids = [renaming.old, *(f"{renaming.old}:{number}" for number in range(2, 100))]
        ours = statements.texts([each for each in ids if renaming.schedule(each) != each])
        left = connection.read(lambda cursor: statements.rows(cursor, _OF_SCHEDULES, ours))
        count += sum(_move_found(connection, statements, renaming, new, (_FIND_TICKS, row[0])) for row in left)
    return count


def _move_found(
    connection: LedgerConnection, statements: LedgerStatements, renaming: Renaming, new: str, found: tuple[Any, ...]
) -> int:
    """Move what a query finds with its parameters, until it finds nothing."""
    (find, *given), count, after = found, 0, 0

    def work(cursor: Cursor) -> list[int]:
        compare(statements.dialect, cursor, renaming.begun)
        rows = statements.rows(cursor, f"{find} AND r.id > %s ORDER BY r.id LIMIT {_BATCH}", *given, after)
        for run_id, schedule, key in rows:
            statements.change(cursor, _MOVE, new, renaming.schedule(schedule), renaming.key(key), run_id)
        return [row[0] for row in rows]

    while (moved := connection.write(work)) or after:
        count += len(moved)
        after = max(moved, default=0)  # and once more from the beginning: others may have committed meanwhile
    return count


def _moved(database: Database, renaming: Renaming, about: About, runs: int, cursor: Cursor) -> Renamed:
    end(database, cursor, renaming.begun)
    _refuse_newcomer(database, cursor, renaming)
    c = database.tables.schedule.c
    query = every_row(database).where(c.job.in_(renaming.own)).order_by(c.id).with_for_update()
    rows = [StoredSchedule(*row) for row in database.rows(cursor, query)]
    deleted = tuple(row.id for row in rows if _is_deleted(database, cursor, renaming, row, about))
    moved = sum(_is_old(renaming, row) for row in rows) - len(deleted)
    _move_job(database, cursor, renaming)
    permissions = taken = 0
    for old, new in renaming.pairs:
        if renaming.is_merge:
            taken += forget_permissions(database, cursor, old)
        else:
            permissions += move_permissions(database, cursor, old, new)
        move_figures(database, cursor, old, new)
    detail: dict[str, Any] = {"schedules": moved, "runs": runs, "permissions": permissions}
    detail |= {} if renaming.begun is None else {"begun": renaming.begun.number}
    merged = {"into_existing": True, "schedules_deleted": [*deleted], "permissions_taken": taken}
    detail |= merged if renaming.is_merge else {}
    detail |= {"between": [*renaming.between]} if renaming.between else {}
    formerly, present = abouts(about._replace(detail=detail), renaming.old, renaming.new)
    audit(database, cursor, Noted.JOB_RENAMED, formerly)
    note(database, cursor, Noted.JOB_RENAMED, present)
    return Renamed(moved, runs, deleted, taken)


def _refuse_newcomer(database: Database, cursor: Cursor, renaming: Renaming) -> None:
    """Refuse to merge with a job that was recorded, or renamed, since it was looked whether there is one."""
    c = database.tables.job.c
    names = [new for _, new in renaming.pairs if new not in renaming.there]
    if found := database.rows(cursor, select(c.name).where(c.name.in_(names)).order_by(c.name)):
        raise LedgerRefused(
            f"job {found[0][0]!r} was recorded while {renaming.old!r} was being renamed, which is not done: look at "
            f"both (fencepost jobs), stop the nodes that have either, and run the same command again"
        )


def _is_old(renaming: Renaming, row: StoredSchedule) -> bool:
    """Whether a schedule that is not deleted has to be moved."""
    return row.deleted_at is None and (renaming.schedule(row.id), renaming.new) != (row.id, row.job)


def _is_deleted(database: Database, cursor: Cursor, renaming: Renaming, row: StoredSchedule, about: About) -> bool:
    """Move a schedule to the new name, or delete it where that has one of the same id; return whether it was deleted.

    In both cases the new name is planned from the later `planned_through` of the two.
    """
    wanted = renaming.schedule(row.id) or row.id
    if (wanted, renaming.new) == (row.id, row.job):
        return False
    there = locked_row(database, cursor, wanted) if wanted != row.id else None
    values: dict[str, Any] = {"id": wanted, "job": renaming.new, "no_node_since": None}
    if there is None:
        update_row(database, cursor, row.id, values)
        return False
    refuse_other_owner(there, renaming.own)
    through_us = max(there.planned_through, row.planned_through)
    stays = row if there.deleted_at is not None else there
    next_us = None if stays.next_due_at is None else DUES.next_due(stays.spec, through_us)
    planned = {"planned_through": through_us, "next_due_at": next_us}
    if stays is row:  # the other is a tombstone
        c = database.tables.schedule.c
        database.change(cursor, delete(c.id.table).where(c.id == wanted))
        update_row(database, cursor, row.id, values | planned)
        return False
    update_row(database, cursor, wanted, planned)
    return row.deleted_at is None and _bury(database, cursor, renaming, row, about)


def _bury(database: Database, cursor: Cursor, renaming: Renaming, row: StoredSchedule, about: About) -> bool:
    ScheduleChange(database, cursor, DUES).bury(row._replace(job=renaming.new), row.generation)
    gone = about._replace(job=renaming.new, schedule=row.id, detail={"formerly": renaming.old})
    note(database, cursor, Noted.SCHEDULE_DELETED, gone)
    return True


def _move_job(database: Database, cursor: Cursor, renaming: Renaming) -> None:
    table = database.tables.job
    for old, new in renaming.pairs:
        found = {row[0]: row[1] for row in database.rows(cursor, select(table.c.name, table.c.policy))}
        if new in found:
            policy = json.loads(found[new])
            policy.pop("formerly", None)
            values = {"policy": json.dumps(policy, sort_keys=True, separators=(",", ":"))}
            database.change(cursor, update(table).where(table.c.name == new).values(values))
            database.change(cursor, delete(table).where(table.c.name == old))
        elif (
            not database.change(cursor, update(table).where(table.c.name == old).values(name=new))
            and old == renaming.old
            and renaming.is_recorded
        ):
            raise NoSuchJob(old)  # somebody else has renamed or forgotten it meanwhile
    database.change(cursor, update(table).where(table.c.parent.in_(renaming.own[:-1])).values(parent=renaming.new))
