"""Renamed jobs: what belongs to the old name continues under the new one.

A job with ``formerly="old"`` keeps everything that is named after it: the ids of its schedules (and so each due time,
and how far it is planned), its exclusive key and fence, the checkpoints and requests of bulk work. These use the first
name of the job (`Policy.known_as`). What has to be moved is the job's name on its schedules and on its runs that have
not ended; ended runs keep the name under which they ran.

**Promises.** While a living node has the old name and the schedules are stored under it, they stay there, and that node
plans and runs them; those of the new name are not stored. When the last such node has left or died, the nodes that have
the new name move everything in one transaction, which is noted in the journal. Runs that appear under the old name
later (a run of a dead node that is queued again, a retry, a request of a program that is not deployed yet) are moved by
the next check, within a minute. A roll-back moves everything back in the same way. What a person has begun to rename
for good stays as it is until that is done.

**Not promised.** Anything for code that drops `formerly` again, or for a name that was stored as a separate job before
it had `formerly`: such a program is refused when it starts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import select, update

from fencepost.core.noted import Noted
from fencepost.core.policy import Policy
from fencepost.errors import InvalidJob, InvalidPolicy
from fencepost.ledger.begun_renames import begun_within
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, statements_for
from fencepost.ledger.jobs import JobRow, NewJob, jobs
from fencepost.ledger.journal import About, note

_BATCH = 2000  # runs per transaction: short locks
# The conditions match those of the partial indexes. The job is hidden from the query planner: few runs are live.
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
    """A former name of a job, and its present one."""

    old: str
    new: str


class Carried(NamedTuple):
    """The result of renames.

    `waiting`: jobs whose schedules stay under the old name, because a living node has it. `is_moved`: something was
    moved. `is_left`: more has to be moved soon.
    """

    waiting: frozenset[str] = frozenset()
    is_moved: bool = False
    is_left: bool = False


def formers(policy: str) -> tuple[str, ...]:
    """Return the former names of a job from its policy as JSON; none if a later version writes them differently."""
    if '"formerly"' not in policy:
        return ()
    try:
        return Policy.from_json(policy).formerly
    except InvalidPolicy:
        return ()


def first_name(database: Database, job: str) -> str:
    """Return the first name of a job, according to the ledger; its own if it was never renamed, or is unknown."""
    return next((formers(row.policy) or (job,) for row in jobs(database) if row.name == job), (job,))[0]


def present_name(database: Database, job: str) -> str:
    """Return the name that a job has now, according to the ledger: see `name_now`.

    What is requested under the present name is what would be moved to it, with the same keys and hashes: these use
    the first name.
    """
    return database.read(lambda cursor: present_name_within(database, cursor, job))


def present_name_within(database: Database, cursor: Cursor, job: str) -> str:
    """Return the same within a transaction."""
    c = database.tables.job.c
    wanted = (c.name == job) | c.policy.contains('"formerly"', autoescape=True)
    query = select(*(c[field] for field in JobRow._fields)).where(wanted).order_by(c.name)
    known = [JobRow(*row) for row in database.rows(cursor, query)]
    is_renamed = any(job in formers(row.policy) for row in known)
    return name_now(job, known, _living_names(database, cursor)) if is_renamed else job


def name_now(job: str, known: Iterable[JobRow], living: Collection[str]) -> str:
    """Return the name that a job has now. `known` are rows of jobs, `living` the names that living nodes have.

    It is `job` itself while a living node has it under that, and else the newer name that one has. Where no node lives,
    what was declared last counts: after a roll-back the newer name is still on record, and is not used any more.
    """
    rows = [(row.seen_at, formers(row.policy), row.name) for row in known]
    newer = sorted((seen, len(names), name) for seen, names, name in rows if job in names)
    if not newer or job in living:
        return job
    if lives := [name for *_, name in newer if name in living]:
        return lives[-1]
    is_back = any(name == job and seen > newer[-1][0] for seen, _, name in rows)
    return job if is_back else newer[-1][-1]


def formers_on_record(
    database: Database, names: Sequence[str], *, connection: LedgerConnection | None = None
) -> frozenset[str]:
    """Return the former names of these jobs, according to the ledger."""
    wanted = set(names)
    return frozenset(
        old for row in jobs(database, connection=connection) if row.name in wanted for old in formers(row.policy)
    )


def carry_over(
    database: Database, declared: Sequence[NewJob], *, generation: int, connection: LedgerConnection | None = None
) -> Carried:
    """Move what is stored under former names of these jobs, unless a living node has the former name.

    What a deploy of a higher generation has stored stays.
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
    """Return the declared renames, and the stored ones that these declarations revert."""
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
    is_begun = any(not each.names.isdisjoint(rename) for each in begun_within(database, cursor))
    if is_begun or _has_node(database, cursor, rename.old):
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
    return job in _living_names(database, cursor)


def _living_names(database: Database, cursor: Cursor) -> frozenset[str]:
    """Return the names of jobs that living nodes have."""
    c = database.tables.node.c
    living = select(c.jobs).where(c.left_at.is_(None), c.dead_at.is_(None))
    return frozenset(name for row in database.rows(cursor, living) for name in json.loads(row[0]))


def _has_schedules(database: Database, cursor: Cursor, job: str) -> bool:
    c = database.tables.schedule.c
    return bool(database.rows(cursor, select(c.id).where(c.job == job, c.deleted_at.is_(None)).limit(1)))


def _move_schedules(database: Database, cursor: Cursor, rename: Rename, generation: int) -> int:
    """Assign the schedules to the new name. `planned_through` stays; `misfire` decides about due times since."""
    table = database.tables.schedule
    values: dict[str, Any] = {"job": rename.new, "no_node_since": None, "updated_at": database.dialect.now()}
    ours = (table.c.job == rename.old) & table.c.deleted_at.is_(None) & (table.c.generation <= generation)
    return database.change(cursor, update(table).where(ours).values(values))


def _open_runs(cursor: Cursor, statements: LedgerStatements, job: str) -> Iterator[int]:
    """Yield runs that have not ended and are not running. Locked rows are skipped; a later call finds them."""
    for each in _OPEN:
        query = f"{_FIND.replace('<open>', each)} ORDER BY r.id LIMIT {_BATCH}{{skip_locked}}"
        yield from (row[0] for row in statements.rows(cursor, query, job))


def refuse_other_names(
    database: Database, declared: Sequence[NewJob], *, connection: LedgerConnection | None = None
) -> None:
    """Refuse jobs whose first name would differ from the stored one: their work would be done again."""
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
            f"job {name!r} is stored under its first name, {before[0]!r}: schedules, fences and checkpoints have it. "
            f"Keep formerly={_spelled(before)}; or, to remove it, stop the nodes that have the job and run: "
            f"fencepost jobs rename {before[0]} {name}"
        )
    raise InvalidJob(
        f"job {name!r} is stored as a separate job, and has formerly={_spelled(now)} only now: due times that it "
        f"has run would run again. Leave formerly out; to move what is left of {now[0]!r}, stop the nodes that have "
        f"either and run: fencepost jobs rename {now[0]} {name} --into-existing"
    )


def _refuse_chain(name: str, now: tuple[str, ...], old: str, before: tuple[str, ...] | None) -> None:
    """Refuse a former name as the first one if that job had another name before."""
    if before is None or (before[:1] or (old,)) == now[:1]:
        return
    if before[:1] == (name,):
        raise InvalidJob(
            f"job {name!r}: {old!r} was called {name!r} before, so this is its first name: leave formerly out"
        )
    chain = _spelled((*before, old)) if before else repr(old)
    raise InvalidJob(f"job {name!r}: {old!r} is stored under its first name; write formerly={chain}")


def _spelled(names: tuple[str, ...]) -> str:
    return repr(names[0]) if len(names) == 1 else repr(list(names))
