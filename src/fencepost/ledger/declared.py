"""The declarations of a program, their fingerprint, and which of several programs' declarations the ledger stores.

Numbered deploys (`generation`) are compared by their number. Deploys without a number, or with the same number, are
distinguished by their *fingerprint*, a hash of everything they declare, and ordered by when a fingerprint was first
seen:

- A program yields, job by job, while a living node has the job and a fingerprint that was first seen later.
  So a pod of an older release that is restarted during a deploy reverts nothing.
- When the last of those nodes has left or died, the remaining nodes apply their declarations, as in a roll-back.

Nodes check this when other nodes join or end, and once a minute. **Not promised**: that the older form never appears. A
program that starts at the moment at which a newer one joins may overwrite it, until the newer one checks next. Nodes of
versions that record no fingerprint write when they start, and count as the oldest.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from sqlalchemy import select

from fencepost.core.identity import canonical_json
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.deploys import Synced, otherwise, sync_code
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.jobs import NewJob, not_on_record, register
from fencepost.ledger.renaming import carry_over, formers_on_record, refuse_other_names
from fencepost.ledger.schedule_rows import NewSchedule

_LENGTH = 32  # hexadecimal digits, 128 bits: as wide as the columns for it (`tables.NODE_LENGTH`)


class Declarations(NamedTuple):
    """Jobs and schedules as declared in the code of one program; `generation` 0 is a deploy without a number."""

    jobs: tuple[NewJob, ...]
    schedules: tuple[NewSchedule, ...]
    generation: int = 0

    @property
    def fingerprint(self) -> str:
        """A hash of these declarations: the same in every process that has the same code."""
        content = [sorted(map(list, self.jobs)), sorted(map(list, self.schedules))]
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:_LENGTH]

    def without(self, names: frozenset[str]) -> Declarations:
        """Return the declarations without these jobs and their schedules."""
        return self.without_schedules(names)._replace(jobs=tuple(each for each in self.jobs if each.name not in names))

    def without_schedules(self, names: frozenset[str]) -> Declarations:
        """Return the declarations without the schedules of these jobs."""
        return self._replace(schedules=tuple(each for each in self.schedules if each.job not in names))


class Applied(NamedTuple):
    """The result of applying declarations.

    `kept` are jobs that a deploy with a higher number has declared differently. `yielded` are those that a living node
    with a later fingerprint has declared differently; these are determined only at the start. `waiting` are renamed
    jobs whose schedules a living node has under the old name. `is_moved` means that something was moved to the new name
    of its job; `is_left` means that there is more to move.
    """

    kept: tuple[str, ...] = ()
    synced: Synced = Synced()
    yielded: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    is_moved: bool = False
    is_left: bool = False


def apply(
    database: Database, declared: Declarations, *, is_start: bool = True, connection: LedgerConnection | None = None
) -> Applied:
    """Store the declarations, except for jobs that a living node of a later deploy has.

    With `is_start`, jobs are recorded as seen now; otherwise only differences are written.
    """
    if is_start:
        refuse_other_names(database, declared.jobs, connection=connection)
    yielded = yields(database, declared, connection=connection)
    own = declared.without(yielded)
    kept: tuple[str, ...] = ()
    if is_start or not_on_record(database, own.jobs, generation=declared.generation, connection=connection):
        kept = register(database, own.jobs, generation=declared.generation, connection=connection)
    why = f"deploy of generation {declared.generation}" if is_start else _LEFT
    carried = carry_over(database, own.jobs, generation=declared.generation, connection=connection)
    names = [each.name for each in own.jobs if each.name not in carried.waiting]
    schedules = own.without_schedules(carried.waiting).schedules
    synced = sync_code(
        database, generation=declared.generation, jobs=names, schedules=schedules, why=why, connection=connection
    )
    different = _different(database, declared, yielded, connection) if is_start and yielded else frozenset[str]()
    return Applied(kept, synced, different, *carried)


def _different(
    database: Database, declared: Declarations, names: frozenset[str], connection: LedgerConnection | None
) -> frozenset[str]:
    """Return those of the jobs `names` that are stored differently in the ledger."""
    jobs = [each for each in declared.jobs if each.name in names]
    schedules = [each for each in declared.schedules if each.job in names]
    different = not_on_record(database, jobs, generation=declared.generation, connection=connection)
    return different | otherwise(database, jobs=names, schedules=schedules, connection=connection)


_LEFT = "no node of a later deploy is left: the remaining deploy applies"


def yields(database: Database, declared: Declarations, *, connection: LedgerConnection | None = None) -> frozenset[str]:
    """Return the jobs of `declared` that a living node has, if its fingerprint was first seen later than this one.

    That node may have the job under a new name. For a deploy with a number, only nodes with the same number count:
    others are compared by number.
    """
    ours = {each.name for each in declared.jobs}
    node, deploy = database.tables.node, database.tables.deploy
    living = (
        select(node.c.jobs, deploy.c.first_seen_at, deploy.c.fingerprint)
        .select_from(node.join(deploy, node.c.fingerprint == deploy.c.fingerprint))
        .where(node.c.left_at.is_(None), node.c.dead_at.is_(None), node.c.fingerprint != declared.fingerprint)
    )
    if declared.generation:
        living = living.where(node.c.generation == declared.generation)

    def work(cursor: Cursor) -> set[str]:
        age = _age(database, cursor, declared.fingerprint)
        later = [json.loads(jobs) for jobs, *of in database.rows(cursor, living) if tuple(of) > age]
        return set().union(*later)

    later = (connection or database).write(work)
    others = sorted(later - ours)
    return frozenset(ours & (later | formers_on_record(database, others, connection=connection) if others else later))


def see(database: Database, fingerprint: str, *, connection: LedgerConnection | None = None) -> None:
    """Record when these declarations were first seen, unless that is recorded already."""
    (connection or database).write(lambda cursor: _age(database, cursor, fingerprint))


def _age(database: Database, cursor: Cursor, fingerprint: str) -> tuple[int, str]:
    """Return the sort key of a fingerprint. One that was never seen is recorded as seen now."""
    deploy = database.tables.deploy
    known = select(deploy.c.first_seen_at).where(deploy.c.fingerprint == fingerprint)
    found = database.rows(cursor, known)
    if not found:
        row = {"fingerprint": fingerprint, "first_seen_at": database.dialect.now()}
        database.dialect.insert_row(cursor, deploy, row)
        found = database.rows(cursor, known)
    return int(found[0][0]), fingerprint
