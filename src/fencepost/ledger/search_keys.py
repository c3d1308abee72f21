"""The rows of search keys (`fencepost.core.search_keys`): written with a run, and removed with it.

**Promises.** A run and its keys are inserted in one transaction. Runs without keys cost no statement. A name and a text
lead to the runs that have them through the primary key, newest first: what else is on record is not read.

**Not promised.** Keys of runs that were recorded before their job declared them, or by a node of an older version. A
run that repeats another one has the keys of that one, unless it has parameters of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import delete, func, select

from fencepost.core.policy import Policy
from fencepost.core.runs import Requested
from fencepost.core.search_keys import fitted_text
from fencepost.errors import InvalidPolicy
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, listed

_INTO = "INTO {run_search} (name, value, run_id) SELECT"
# WHERE: so that what follows is not parsed as part of a join.
_OF_KEYS = f"""{_INTO} e.name, e.value, r.id FROM {{rows:e origin_key=text params_hash=text name=text value=text}}
JOIN {{run}} r ON r.origin_key = e.origin_key WHERE r.params_hash = e.params_hash"""
_OF_IDS = f"{_INTO} e.name, e.value, e.id FROM {{rows:e id=int name=text value=text}} WHERE 1 = 1"
_AGAIN = f"""{_INTO} s.name, s.value, e.id FROM {{rows:e id=int old=int}}
JOIN {{run_search}} s ON s.run_id = e.old WHERE 1 = 1"""


def index_planned(cursor: Cursor, statements: LedgerStatements, requested: Sequence[Requested]) -> None:
    """Write the keys of runs that were just inserted, and are found by their origin keys."""
    rows = [[each.origin_key, each.params_hash, *key] for each in requested for key in each.search]
    _insert(cursor, statements, _OF_KEYS, rows)


def index_recorded(
    cursor: Cursor, statements: LedgerStatements, requested: Sequence[Requested], run_ids: Sequence[int | None]
) -> None:
    """Write the keys of runs that were just inserted; None stands for one that was there before."""
    pairs = zip(requested, run_ids, strict=True)
    _insert(cursor, statements, _OF_IDS, [[id_, *key] for each, id_ in pairs if id_ is not None for key in each.search])


def index_repeated(cursor: Cursor, statements: LedgerStatements, repeated: Sequence[tuple[int, int]]) -> None:
    """Give runs the keys of those that they repeat: pairs of the new and the old id."""
    _insert(cursor, statements, _AGAIN, [list(pair) for pair in repeated])


def _insert(cursor: Cursor, statements: LedgerStatements, into: str, rows: Sequence[Sequence[object]]) -> None:
    if rows:
        statements.change(cursor, statements.dialect.spelling.insert_if_absent(into), listed(rows))


def remove_keys(database: Database, cursor: Cursor, run_ids: Collection[int]) -> int:
    """Remove the keys of these runs, in a transaction of the caller's."""
    table = database.tables.operating["run_search"]
    return database.change(cursor, delete(table).where(table.c.run_id.in_(run_ids)))


def ids_with(
    database: Database,
    name: str,
    text: str,
    *,
    before_id: int | None,
    limit: int,
    jobs: Collection[str] | None = None,
    connection: LedgerConnection | None = None,
) -> list[int]:
    """Return the ids of runs with this key, newest first; with `jobs`, of no others, so that they tell nothing."""
    c, run = database.tables.operating["run_search"].c, database.tables.run.c
    query = select(c.run_id).where(c.name == name, c.value == fitted_text(text)).order_by(c.run_id.desc()).limit(limit)
    if jobs is not None:
        # Not by the index of jobs: the key leads to fewer runs.
        query = query.where(run.id == c.run_id, func.coalesce(run.job, "").in_(sorted(jobs)))
    if before_id is not None:
        query = query.where(c.run_id < before_id)
    return (connection or database).read(lambda cursor: [row[0] for row in database.rows(cursor, query)])


def declared_names(database: Database, *, jobs: Collection[str] | None) -> dict[str, frozenset[str]]:
    """Return the search keys that these jobs declare, by job; jobs that declare none are left out."""
    c = database.tables.job.c
    query = select(c.name, c.policy).where(c.policy.contains('"search":', autoescape=True))
    if jobs is not None:
        if not jobs:
            return {}
        query = query.where(c.name.in_(sorted(jobs)))
    rows = database.read(lambda cursor: database.rows(cursor, query))
    return {name: frozenset(names) for name, policy in rows if (names := names_in(policy))}


def names_in(policy: str) -> tuple[str, ...]:
    """Return the search keys that a stored policy declares; none if this version cannot read it."""
    try:
        return Policy.from_json(policy).search
    except InvalidPolicy:
        return ()
