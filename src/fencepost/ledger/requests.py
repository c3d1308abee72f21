"""Requests of people and programs: enqueue, cancel, retry, release and reprocess runs.

Each act of an operator is noted in the journal, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import update

from fencepost.core.noted import Noted
from fencepost.core.runs import Requested
from fencepost.core.states import Move, RunState, WaitsFor, is_terminal
from fencepost.errors import IllegalMove
from fencepost.ledger.begun_renames import begun_within, refuse_begun
from fencepost.ledger.callers import cursor_of
from fencepost.ledger.changed_runs import has_params_of, repeat_changed
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, said, statements_for
from fencepost.ledger.duplicates import hold, live_repetitions, live_twin, repetitions
from fencepost.ledger.history import RunFilter, RunRow, run_row, runs, whole_runs
from fencepost.ledger.identity import refuse_another_ledger
from fencepost.ledger.jobs import NewJob
from fencepost.ledger.journal import About, note
from fencepost.ledger.promoting import promote
from fencepost.ledger.recording import Enqueued, record
from fencepost.ledger.roots import root_of
from fencepost.ledger.search_keys import index_repeated
from fencepost.ledger.unplanned import as_planned

T = TypeVar("T")


RunCheck = Callable[[RunRow], None]
"""Looks at the row of a run inside of the act's own transaction, and raises if the act is not allowed on it."""


def any_run(_: RunRow) -> None:
    """Allow the act on every run."""


class Cancelled(StrEnum):
    """The result of a request to cancel a run."""

    NOW = "cancelled"  # the run had not started, and will not
    REQUESTED = "requested"  # the run is running; its node will stop it
    TOO_LATE = "too late"  # the run had already ended


class Retried(NamedTuple):
    """A run and the run that repeats it."""

    old_id: int
    run_id: int
    is_new: bool


def enqueue(
    database: Database, requests: Sequence[Requested], *, tx: Any = None, connection: LedgerConnection | None = None
) -> list[Enqueued]:
    """Record requests, all or none, and return the run for each of them.

    `tx` is an open connection of the caller to the same database. With it, the runs are part of the caller's
    transaction and exist once that commits; errors of the driver are then passed on unchanged.
    """
    return _within(
        database, lambda cursor: _record_and_notify(database, cursor, requests), tx=tx, connection=connection
    )


def enqueue_unique(
    database: Database,
    request: Requested,
    *,
    newcomer: NewJob | None = None,
    tx: Any = None,
    connection: LedgerConnection | None = None,
) -> Enqueued:
    """Record a request, unless a live run asks for the same; return that run, or the new one.

    `newcomer` is registered if the job is not stored yet. In a caller's transaction, concurrent calls for the same job
    wait until that transaction ends.
    """

    def work(cursor: Cursor) -> Enqueued:
        hold(database, cursor, request.job, newcomer)
        twin = live_twin(database, cursor, request, is_ours=tx is None)
        return (
            Enqueued(twin.run_id, is_new=False)
            if twin is not None
            else _record_and_notify(database, cursor, [request])[0]
        )

    return _within(database, work, tx=tx, connection=connection)


def _record_and_notify(database: Database, cursor: Cursor, requests: Sequence[Requested]) -> list[Enqueued]:
    """Record requests, and notify nodes if there are new runs."""
    made = record(database, cursor, requests)
    if any(each.is_new for each in made):
        _statements(database).notify(cursor)
    return made


def _within(database: Database, work: Callable[[Cursor], T], *, tx: Any, connection: LedgerConnection | None) -> T:
    if tx is None:
        return (connection or database).write(work)
    with cursor_of(tx, database.dialect) as cursor:
        refuse_another_ledger(cursor, database)
        return work(cursor)


def cancel(
    database: Database,
    run_id: int,
    *,
    by: str | None = None,
    reason: str | None = None,
    check: RunCheck = any_run,
    connection: LedgerConnection | None = None,
) -> Cancelled:
    """Cancel a run that has not started, or ask the node that runs it to stop it. Idempotent."""

    def work(cursor: Cursor) -> tuple[Cancelled, RunRow]:
        row = run_row(database, cursor, run_id, for_update=True)
        check(row)
        outcome = _cancelled(database, cursor, row, by, reason)
        return outcome, row

    place = connection or database
    outcome, row = place.write(work)
    if outcome is Cancelled.NOW and row.exclusive_key is not None:
        # It may have been the next in line for its key. In a separate transaction, because of the order of locks.
        key = row.exclusive_key
        place.write(lambda cursor: promote(cursor, _statements(database), [key]))
    return outcome


def _cancelled(database: Database, cursor: Cursor, row: RunRow, by: str | None, reason: str | None) -> Cancelled:
    state = RunState(row.state)
    if is_terminal(state):
        return Cancelled.TOO_LATE
    now = database.dialect.now()
    about = About(job=row.job, run_id=row.id, schedule=row.schedule, by=by, reason=reason)
    if state is RunState.RUNNING:
        if row.cancel_requested_at is None:
            _update(database, cursor, row.id, cancel_requested_at=now, cancel_by=said(by))
            note(database, cursor, Noted.CANCEL_REQUESTED, about)
            _statements(database).notify(cursor)
        return Cancelled.REQUESTED
    times = {"cancel_requested_at": now, "ended_at": now}
    words = {"cancel_by": said(by), "why": said(reason)}
    _update(database, cursor, row.id, state="cancelled", waits_for=None, **words, **times)
    note(database, cursor, Noted.RUN_CANCELLED, about)
    return Cancelled.NOW


def retry(
    database: Database,
    run_id: int,
    *,
    by: str | None = None,
    reason: str | None = None,
    again: bool = False,
    origin_key: str | None = None,
    changed: Requested | None = None,
    check: RunCheck = any_run,
    connection: LedgerConnection | None = None,
) -> int:
    """Create a new run with the parameters and window of a run that has ended; return its id.

    Raises `AlreadyRequested` while a repetition of the run is live, unless `again` is set, and `LedgerRefused` while
    its job is being renamed. `changed` is the repetition with other parameters, as `fencepost.ledger.changed_runs`
    describes it.
    """

    def work(cursor: Cursor) -> int:
        if changed is not None:
            hold(database, cursor, changed.job)
        # Locked, so that the second of two concurrent calls sees the run that the first has created.
        row = run_row(database, cursor, run_id, for_update=True)
        check(row)
        if not is_terminal(RunState(row.state)):
            raise IllegalMove(row.state, Move.RETRY.value)
        under_way = {} if again else live_repetitions(database, cursor, [run_id])
        if under_way:
            raise under_way[run_id].refusal(f"repeats run {run_id} already")
        refuse_begun(begun_within(database, cursor), [row.job])
        if changed is not None and not has_params_of(row, changed):
            planned = as_planned(database, cursor, row._replace(params=changed.params), key=changed.exclusive_key)
            wanted = changed._replace(requested_by=by, reason=reason, queue=planned.queue, priority=planned.priority)
            wanted = wanted._replace(exclusive_key=changed.exclusive_key or planned.exclusive_key)
            made = repeat_changed(database, cursor, row, wanted, again=again)
        else:
            [made] = _repeated(database, cursor, [row], by=by, reason=reason, origin_key=origin_key)
        return made.run_id

    return (connection or database).write(work)


def release_held(
    database: Database,
    run_id: int,
    *,
    by: str | None = None,
    reason: str | None = None,
    check: RunCheck = any_run,
    connection: LedgerConnection | None = None,
) -> None:
    """Queue a run that waits for a person."""

    def work(cursor: Cursor) -> None:
        row = run_row(database, cursor, run_id, for_update=True)
        check(row)
        if (row.state, row.waits_for) != (RunState.WAITING, WaitsFor.PERSON):
            raise IllegalMove(row.state, Move.RELEASE.value)
        _update(database, cursor, run_id, state="queued", waits_for=None, why=None, available_at=database.dialect.now())
        about = About(job=row.job, run_id=run_id, schedule=row.schedule, by=by, reason=reason)
        note(database, cursor, Noted.RUN_RELEASED, about)
        _statements(database).notify(cursor)

    (connection or database).write(work)


def reprocess(
    database: Database,
    wanted: RunFilter,
    *,
    after_id: int = 0,
    limit: int = 100,
    by: str | None = None,
    reason: str | None = None,
    connection: LedgerConnection | None = None,
) -> list[Retried]:
    """Repeat runs that were given up, starting after `after_id`; to continue, pass the last `old_id` as `after_id`.

    Each run is repeated once, however often this is called. A repetition that fails is a run of its own, with its own
    id. A run that was already repeated with `retry` is not repeated here, unless that repetition was cancelled: so a
    run whose repetition has succeeded is not repeated, and of a chain of runs that were given up only the last one is.
    A repetition with other parameters does not count: what the run was to do with its own is still not done.

    Raises `LedgerRefused` while the job of one of these runs is being renamed.
    """
    failed = RunFilter(
        job=wanted.job,
        jobs=wanted.jobs,
        states=("dead",),
        schedule=wanted.schedule,
        queue=wanted.queue,
        since_us=wanted.since_us,
        until_us=wanted.until_us,
    )
    found = runs(database, failed, after_id=after_id, limit=limit, connection=connection)

    def work(cursor: Cursor) -> list[Retried]:
        kept = _locked(database, cursor, [row.id for row in found], wanted)
        repeated_by = repetitions(database, cursor, kept)
        rows = [row for row in kept if row.id not in repeated_by]
        refuse_begun(begun_within(database, cursor), {row.job for row in rows})
        made = _repeated(database, cursor, rows, by=by, reason=reason, once=True)
        new = [Retried(row.id, *each) for row, each in zip(rows, made, strict=True)]
        old = [Retried(old_id, run_id, is_new=False) for old_id, run_id in repeated_by.items()]
        return sorted(new + old)

    return (connection or database).write(work) if found else []


def _locked(database: Database, cursor: Cursor, run_ids: Sequence[int], wanted: RunFilter) -> list[RunRow]:
    """Lock and return the rows of runs that have ended, as `retry` does: those of the wanted jobs still.

    A job can be renamed after they were found: as they were then, their repetitions would have its old name.
    """
    c = database.tables.run.c
    query = whole_runs(database).where(c.id.in_(run_ids)).order_by(c.id).with_for_update()
    if wanted.jobs is not None:
        query = query.where(c.job.in_(sorted(wanted.jobs)))
    if wanted.job is not None:
        query = query.where(c.job == wanted.job)
    return [RunRow(*row) for row in database.rows(cursor, query)]


def _repeated(
    database: Database,
    cursor: Cursor,
    rows: Sequence[RunRow],
    *,
    by: str | None,
    reason: str | None,
    once: bool = False,
    origin_key: str | None = None,
) -> list[Enqueued]:
    keys = [f"retry:{row.id}" if once else origin_key for row in rows]
    planned = [as_planned(database, cursor, row) for row in rows]
    repetitions = [repetition(row, by, reason, key) for row, key in zip(planned, keys, strict=True)]
    roots = [root_of(database, cursor, row).to_text() for row in rows]
    made = record(database, cursor, [each._replace(root=root) for each, root in zip(repetitions, roots, strict=True)])
    for row, each in zip(rows, made, strict=True):
        if each.is_new:
            about = About(job=row.job, run_id=each.run_id, schedule=row.schedule, by=by, reason=reason)
            note(database, cursor, Noted.RUN_RETRIED, about._replace(detail={"retry_of": row.id}))
    new = [(each.run_id, row.id) for row, each in zip(rows, made, strict=True) if each.is_new]
    index_repeated(cursor, _statements(database), new)
    if any(each.is_new for each in made):
        _statements(database).notify(cursor)
    return made


def repetition(row: RunRow, by: str | None = None, reason: str | None = None, key: str | None = None) -> Requested:
    """Return the request for a run that repeats `row`, without its root; `key` is its origin key."""
    return Requested(
        job=row.job,
        type=row.type,
        params=row.params,
        params_hash=row.params_hash,
        origin_key=key,
        schedule=row.schedule,
        first_due_at_us=row.first_due_at,
        due_at_us=row.due_at,
        ticks=row.ticks,
        window_start_us=row.window_start,
        window_end_us=row.window_end,
        priority=row.priority,
        queue=row.queue,
        exclusive_key=row.exclusive_key,
        requested_by=by,
        reason=reason,
        retry_of=row.id,
        generation=row.generation,
    )


def _update(database: Database, cursor: Cursor, run_id: int, **values: Any) -> None:
    table = database.tables.run
    database.change(cursor, update(table).where(table.c.id == run_id).values(values))


def _statements(database: Database) -> LedgerStatements:
    return statements_for(database.connect("words"))
