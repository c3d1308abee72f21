"""Duplicates: whether a run that has not ended already does what is requested.

**Promises.** If several callers concurrently ask for the same (one `request_hash`: job, parameters, window and
requested time), and all of them use `hold` and `live_twin`, then one finds no live run, and all others find the run of
that one.

**How.** `hold` locks the row of the job until the end of the transaction. So callers that ask for runs of one job
proceed one after the other; each searches while it has the lock, and sees what the others have committed. This needs no
index and no column. Claims and finishes, which are a thousand times as frequent, neither pay for it nor wait, because
they do not touch the rows of jobs. It costs a search through the runs that have not ended, with the partial indexes on
them: about a millisecond, and with 100,000 runs in the queue about 30 ms on PostgreSQL and SQLite and 300 ms on
MariaDB. On SQLite the lock is that of the only writer.

The caller's own transaction may see the ledger as of its beginning (repeatable read). There the ledger is also searched
over a separate connection: the caller's connection sees what the caller has enqueued, and the separate one what others
have.

**Not promised.** Anything about runs that have ended: a later request for the same creates a new run. Nor anything
about callers that do not search (programs, unless they pass ``unique=True``): others find their runs, but such callers
are not held back.
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import select, update

from fencepost.core.identity import BACKFILL
from fencepost.core.runs import Requested
from fencepost.core.tick import spelled_us
from fencepost.errors import AlreadyRequested
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.history import RunRow, is_own_root
from fencepost.ledger.jobs import NewJob
from fencepost.ledger.roots import Root, root_of

# One condition for each partial index on live runs.
_LIVE = (
    "state = 'queued'",
    "state = 'running'",
    "state = 'waiting' AND waits_for = 'time'",
    "state = 'waiting' AND waits_for = 'key'",
    "state = 'waiting' AND waits_for = 'person'",
    "state = 'waiting' AND waits_for = 'node'",
)
CALLED_OFF = ("cancelled", "skipped", "misfired")
_BATCH = 500  # parameters per statement stay below every driver's limit


class Twin(NamedTuple):
    """A run that has not ended, and that does what is requested."""

    run_id: int
    job: str
    state: str
    requested_by: str | None
    created_at_us: int
    retry_of: int | None

    def refusal(self, what: str = "asks for the same") -> AlreadyRequested:
        """Return the error that refers to this run."""
        return AlreadyRequested(
            what,
            run_id=self.run_id,
            job=self.job,
            state=self.state,
            requested_by=self.requested_by,
            requested_at=spelled_us(self.created_at_us),
        )


_TWIN = "id, job, state, requested_by, created_at, retry_of"


def hold(database: Database, cursor: Cursor, job: str, newcomer: NewJob | None = None) -> None:
    """Make concurrent callers of `hold` for the same `job` wait until this transaction ends.

    If no node has registered the job yet, `newcomer` is stored, because there must be a row to lock.
    """
    if not _locked(database, cursor, job) and newcomer is not None:
        row = newcomer._asdict() | {"generation": 0, "seen_at": database.dialect.now()}
        if not database.dialect.insert_row(cursor, database.tables.job, row):
            _locked(database, cursor, job)  # another transaction has inserted it first


def _locked(database: Database, cursor: Cursor, job: str) -> bool:
    """Lock the job's row; return whether it exists."""
    table = database.tables.job
    if database.dialect.has_one_writer:
        # Also in a caller's transaction that has only read so far: it becomes the writer, or the UPDATE fails.
        return database.change(cursor, update(table).where(table.c.name == job).values(name=job)) > 0
    return bool(database.rows(cursor, select(table.c.name).where(table.c.name == job).with_for_update()))


def live_twin(database: Database, cursor: Cursor, request: Requested, *, is_ours: bool = True) -> Twin | None:
    """Return the oldest live run that asks for the same. Call `hold` first.

    `is_ours` means that the transaction was begun by the ledger, and sees everything that is committed so far.
    """
    found = _twins(database, cursor, "params_hash", [request.params_hash])
    if not is_ours and not database.dialect.has_one_writer:
        found += database.read_beside(lambda other: _twins(database, other, "params_hash", [request.params_hash]))
    return min(found, default=None)


def live_repetitions(database: Database, cursor: Cursor, run_ids: Collection[int]) -> dict[int, Twin]:
    """Return the live runs that repeat one of `run_ids`, by the run that they repeat. Lock those rows first."""
    found = sorted(_twins(database, cursor, "retry_of", run_ids), reverse=True) if run_ids else []
    return {each.retry_of: each for each in found if each.retry_of is not None}


def repetitions(database: Database, cursor: Cursor, rows: Sequence[RunRow]) -> dict[int, int]:
    """Return, for runs that were given up, the later run that replaces each; runs that have no such run are left out.

    Among a run and all its repetitions, the latest that was not called off (cancelled, skipped or misfired) replaces
    those before it: it has succeeded, has not ended, or was given up itself. Repetitions with other parameters are not
    among them: they do other work. Lock the rows first.
    """
    roots = {row.id: root_of(database, cursor, row) for row in rows}
    chains = {run_id: root.run_id for run_id, root in roots.items()}
    chains |= {root: root for root in chains.values()}
    latest: dict[int, int] = {}
    for run_id, root, state in _runs_of_roots(database, cursor, {each.to_text() for each in roots.values()}):
        chain = chains.setdefault(run_id, root.run_id)
        if state not in CALLED_OFF:
            latest[chain] = max(latest.get(chain, 0), run_id)
    followed: Collection[int] = list(chains)
    while followed:
        found = _repetitions_of(database, cursor, followed)
        followed = {run_id for run_id, _, _ in found if run_id not in chains}
        for run_id, retry_of, state in found:
            chain = chains.setdefault(run_id, chains[retry_of])
            if state not in CALLED_OFF:
                latest[chain] = max(latest.get(chain, 0), run_id)
    standing = ((row.id, latest.get(chains[row.id], 0)) for row in rows)
    return {run_id: other for run_id, other in standing if other > run_id}


def _runs_of_roots(database: Database, cursor: Cursor, texts: Collection[str]) -> list[tuple[int, Root, str]]:
    """Return the runs with one of these roots, their root and their state, even if runs in between are pruned."""
    c = database.tables.run.c
    wanted = sorted(texts)
    found: list[tuple[int, Root, str]] = []
    for start in range(0, len(wanted), _BATCH):
        query = select(c.id, c.root, c.state).where(c.root.in_(wanted[start : start + _BATCH])).order_by(c.id)
        for run_id, text, state in database.rows(cursor, query):
            if (root := Root.from_text(text)) is not None:
                found.append((int(run_id), root, str(state)))
    return found


def _repetitions_of(database: Database, cursor: Cursor, run_ids: Collection[int]) -> list[tuple[int, int, str]]:
    """Return the runs that repeat one of these with the same parameters, the run that each repeats, and their state."""
    c = database.tables.run.c
    found: list[tuple[int, int, str]] = []
    wanted = sorted(run_ids)
    for start in range(0, len(wanted), _BATCH):
        columns = select(c.id, c.retry_of, c.state, c.root)
        query = columns.where(c.retry_of.in_(wanted[start : start + _BATCH])).order_by(c.id)
        found += [
            (int(run_id), int(retry_of), str(state))
            for run_id, retry_of, state, root in database.rows(cursor, query)
            if not is_own_root(run_id, root)
        ]
    return found


def live_backfill(database: Database, cursor: Cursor, asked: Sequence[Requested]) -> Twin | None:
    """Return the first live run of another back-fill that is for one of the due times in `asked`."""
    found: list[Twin] = []
    wanted = {(each.schedule, each.due_at_us, each.params_hash) for each in asked}
    for schedule in sorted({each.schedule for each in asked if each.schedule is not None}):
        dues = [each.due_at_us for each in asked if each.schedule == schedule and each.due_at_us is not None]
        mark = database.dialect.mark
        cursor.execute(
            f"SELECT {_TWIN}, origin_key, schedule, due_at, params_hash FROM {database.tables.name('run')} "
            f"WHERE schedule = {mark} AND due_at >= {mark} AND due_at <= {mark} "
            "AND state IN ('queued', 'running', 'waiting')",
            (schedule, min(dues), max(dues)),
        )
        for *twin, origin_key, its_schedule, due_at, params_hash in cursor.fetchall():
            if str(origin_key).startswith(BACKFILL) and (its_schedule, due_at, params_hash) in wanted:
                found.append(Twin(*twin))
    return min(found, default=None)


def _twins(database: Database, cursor: Cursor, column: str, values: Collection[str] | Collection[int]) -> list[Twin]:
    run, marks = database.tables.name("run"), ", ".join([database.dialect.mark] * len(values))
    parts = (f"SELECT {_TWIN} FROM {run} WHERE {live} AND {column} IN ({marks})" for live in _LIVE)
    cursor.execute(" UNION ALL ".join(parts), (*values,) * len(_LIVE))
    return [Twin(*row) for row in cursor.fetchall()]
