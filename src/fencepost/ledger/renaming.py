"""Renamed jobs: what stood under the old name goes on under the new one.

A job that says ``formerly="old"`` keeps all that is named by its name: ids of its schedules (and so each due time, and
how far it is planned), its exclusive key and fence, the checkpoints and requests of bulk work. They go by the first
name that it had (`Policy.known_as`). What is left to move is the name of the job on its schedules and on its runs that
have not ended; ended runs stay under the name that they ran by.

**Promises.** While a living node has the old name and its schedules are on record under it, they stay there, and that
node plans and runs them; the new name's are not put on record. When the last such node has left or died, the nodes that
have the new name move everything in one transaction, on record. Whatever comes to be under the old name later (a run
of a dead node that is queued again, a retry, a request of a program that was not deployed yet) follows at the next
look, within a minute. A roll-back goes the same way back.

**Not promised.** Anything to code that drops `formerly` again, or to a name that was on record as a job of its own
before it said so: such a program is refused when it starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import select, update

from fencepost.core.noted import Noted
from fencepost.core.policy import Policy
from fencepost.errors import InvalidJob, InvalidPolicy
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, statements_for
from fencepost.ledger.jobs import JobRow, NewJob, jobs
from fencepost.ledger.journal import About, note

_BATCH = 2000
# Each spelled as the index that holds such rows is. The job is hidden from the planner: what has not ended is little.
_OPEN = (
    "r.state = 'queued'",
    "r.state = 'waiting' AND r.waits_for = 'time'",
    "r.state = 'waiting' AND r.waits_for = 'key'",
    "r.state = 'waiting' AND r.waits_for = 'person'",
    "r.state = 'waiting' AND r.waits_for = 'node'",
)
_FIND = "SELECT r.id FROM {run} r WHERE <open> AND {was:r.job} = %s"
_MOVE = "UPDATE {run} SET job = %s WHERE {ints:id} AND {was:job} = %s AND {was:state} <> 'running'"
_RUNNING = "SELECT r.id FROM {run} r WHERE r.state = 'running' AND {was:r.job} = %s LIMIT 1"


class Rename(NamedTuple):
    """A name that a job had, and the one that it has."""

    old: str
    new: str


class Carried(NamedTuple):
    """What became of renames.

    `waiting`: jobs whose schedules stay under the old name, for a living node has that. `is_moved`: something was
    moved. `is_left`: more has to be, soon.
    """

    waiting: frozenset[str] = frozenset()
    is_moved: bool = False
    is_left: bool = False


def formers(policy: str) -> tuple[str, ...]:
    """Return the names that a job had before, by its policy as JSON; none if a later version spells them otherwise."""
    if '"formerly"' not in policy:
        return ()
    try:
        return Policy.from_json(policy).formerly
    except InvalidPolicy:
        return ()


def first_name(database: Database, job: str) -> str:
    """Return the first name that a job had, as the ledger has it; its own if it was never renamed, or is unknown."""
    return next((formers(row.policy) or (job,) for row in jobs(database) if row.name == job), (job,))[0]


def formers_on_record(
    database: Database, names: Sequence[str], *, connection: LedgerConnection | None = None
) -> frozenset[str]:
    """Return the names that these jobs had before, as the ledger has it."""
    wanted = set(names)
    return frozenset(
        old for row in jobs(database, connection=connection) if row.name in wanted for old in formers(row.policy)
    )


def carry_over(
    database: Database, declared: Sequence[NewJob], *, generation: int, connection: LedgerConnection | None = None
) -> Carried:
    """Move what stands under former names of these jobs, unless a living node has the former name.

    What a deploy of a higher generation has put on record stays.
    """
    renames = _renames(declared, [row for row in jobs(database, connection=connection) if row.generation <= generation])
    if not renames:
        return Carried()
    place = connection or database.connect("renaming")
    work = partial(_carried, database, statements_for(place), generation)
    try:
        found = [place.write(partial(work, each)) for each in renames]
    finally:
        if connection is None:
            place.rest()
    waiting = frozenset[str]().union(*(each.waiting for each in found))
    return Carried(waiting, any(each.is_moved for each in found), any(each.is_left for each in found))


def _renames(declared: Sequence[NewJob], known: Sequence[JobRow]) -> list[Rename]:
    """Return the renames that are declared, and those on record that these declarations take back."""
    ours = {each.name for each in declared}
    forward = [Rename(old, each.name) for each in declared for old in formers(each.policy)]
    back = [
        Rename(row.name, root[0])
        for row in known
        if row.name not in ours and (root := formers(row.policy)) and root[0] in ours
    ]
    return forward + [each for each in back if each not in forward]


def _carried(
    database: Database, statements: LedgerStatements, generation: int, rename: Rename, cursor: Cursor
) -> Carried:
    if _has_node(database, cursor, rename.old):
        is_waiting = _has_schedules(database, cursor, rename.old)
        return Carried(frozenset({rename.new}) if is_waiting else frozenset())
    schedules = _move_schedules(database, cursor, rename, generation)
    found = list(_open_runs(cursor, statements, rename.old))
    runs = statements.change(cursor, _MOVE, rename.new, statements.ints(found), rename.old) if found else 0
    is_moved = bool(schedules or runs)
    if is_moved:
        detail = {"formerly": rename.old, "schedules": schedules, "runs": runs}
        reason = f"job {rename.old!r} is called {rename.new!r} now, and no living node has the old name"
        note(database, cursor, Noted.JOB_RENAMED, About(job=rename.new, reason=reason, detail=detail))
        statements.notify(cursor)
    return Carried(is_moved=is_moved, is_left=bool(found) or bool(statements.rows(cursor, _RUNNING, rename.old)))


def _has_node(database: Database, cursor: Cursor, job: str) -> bool:
    c = database.tables.node.c
    living = select(c.jobs).where(c.left_at.is_(None), c.dead_at.is_(None))
    return any(job in json.loads(row[0]) for row in database.rows(cursor, living))


def _has_schedules(database: Database, cursor: Cursor, job: str) -> bool:
    c = database.tables.schedule.c
    return bool(database.rows(cursor, select(c.id).where(c.job == job, c.deleted_at.is_(None)).limit(1)))


def _move_schedules(database: Database, cursor: Cursor, rename: Rename, generation: int) -> int:
    """Give the schedules to the new name. How far they are planned stays; what passed meanwhile is for `misfire`."""
    table = database.tables.schedule
    values: dict[str, Any] = {"job": rename.new, "no_node_since": None, "updated_at": database.dialect.now()}
    ours = (table.c.job == rename.old) & table.c.deleted_at.is_(None) & (table.c.generation <= generation)
    return database.change(cursor, update(table).where(ours).values(values))


def _open_runs(cursor: Cursor, statements: LedgerStatements, job: str) -> Iterator[int]:
    """Yield runs that have not ended and that nobody executes; those that somebody has locked come again."""
    for each in _OPEN:
        query = f"{_FIND.replace('<open>', each)} ORDER BY r.id LIMIT {_BATCH}{{skip_locked}}"
        yield from (row[0] for row in statements.rows(cursor, query, job))


def refuse_other_names(
    database: Database, declared: Sequence[NewJob], *, connection: LedgerConnection | None = None
) -> None:
    """Refuse jobs that would go by another first name than they do on record: their work would be done anew."""
    if not declared:
        return
    known = {row.name: formers(row.policy) for row in jobs(database, connection=connection)}
    for each in declared:
        now = formers(each.policy)
        for old in now:
            _refuse_chain(each.name, now, old, known.get(old))
        _refuse_dropped(each.name, now, known.get(each.name))


def _refuse_dropped(name: str, now: tuple[str, ...], before: tuple[str, ...] | None) -> None:
    if before is None or now[:1] == before[:1]:
        return
    if before:
        raise InvalidJob(
            f"job {name!r} goes by its first name on record, {before[0]!r}: schedules, fences and checkpoints have it. "
            f"Keep formerly={_spelled(before)}; or, to be rid of it, stop the nodes that have the job and: "
            f"fencepost jobs rename {before[0]} {name}"
        )
    raise InvalidJob(
        f"job {name!r} is on record as a job of its own, and says formerly={_spelled(now)} only now: due times that it "
        f"has run would run again. Leave formerly out; to move what is left of {now[0]!r}, stop the nodes that have "
        f"either and: fencepost jobs rename {now[0]} {name}"
    )


def _refuse_chain(name: str, now: tuple[str, ...], old: str, before: tuple[str, ...] | None) -> None:
    """Refuse to take a former name for the first one if that job had another one before."""
    if before is None or (before[:1] or (old,)) == now[:1]:
        return
    if before[:1] == (name,):
        raise InvalidJob(
            f"job {name!r}: {old!r} was called {name!r} before, so this is its first name: leave formerly out"
        )
    chain = _spelled((*before, old)) if before else repr(old)
    raise InvalidJob(f"job {name!r}: {old!r} goes by its first name on record; write formerly={chain}")


def _spelled(names: tuple[str, ...]) -> str:
    return repr(names[0]) if len(names) == 1 else repr(list(names))
