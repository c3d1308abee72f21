"""The history of runs: which runs there were, how they ended, and why others did not run.

Pages are read by keyset, never by offset, so they neither overlap nor leave gaps. ``before_id`` returns older runs,
newest first. ``after_id`` returns newer runs, oldest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Select, func, literal, or_, select

from fencepost.core.search_keys import has_values, spellings
from fencepost.core.states import RunState, WaitsFor
from fencepost.errors import NoSuchRun
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.id_order import SLACK_US, end_id_at, first_id_at


class RunRow(NamedTuple):
    """A run as stored in the ledger. Instants are in µs; `params` and `result` are JSON."""

    id: int
    job: str
    type: str
    state: str
    waits_for: str | None
    schedule: str | None
    origin_key: str | None
    first_due_at: int | None
    due_at: int | None
    ticks: int
    window_start: int | None
    window_end: int | None
    params: str
    params_hash: str
    requested_by: str | None
    reason: str | None
    priority: int
    queue: str
    exclusive_key: str | None
    attempts: int
    failures: int
    crashes: int
    node: str | None
    token: int
    created_at: int
    available_at: int
    started_at: int | None
    ended_at: int | None
    cancel_requested_at: int | None
    cancel_by: str | None
    error_code: str | None
    error: str | None
    result: str | None
    progress: float | None
    progress_note: str | None
    sla_at: int | None
    retry_of: int | None
    generation: int
    why: str | None
    root: str | None = None


class AttemptRow(NamedTuple):
    """An attempt that has ended."""

    run_id: int
    number: int
    node: str | None
    token: int
    started_at: int | None
    ended_at: int
    took_us: int | None
    outcome: str
    error_code: str | None
    error: str | None
    trace: str | None


@dataclass(frozen=True, slots=True)
class RunFilter:
    """A filter for runs. A field that is None, or empty `states`, does not restrict the result.

    `since_us` and `until_us` refer to the time at which the run was created. `jobs` are the jobs that are allowed,
    whatever `job` says: an empty set finds nothing, and the database is not asked. With `params`, a page may have fewer
    runs than there are.
    """

    job: str | None = None
    jobs: Collection[str] | None = None
    states: Collection[str] = ()
    waits_for: str | None = None
    schedule: str | None = None
    queue: str | None = None
    node: str | None = None
    requested_by: str | None = None
    retry_of: int | None = None
    exclusive_key: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    ids: Collection[int] | None = None
    params: Mapping[str, str] | None = None  # by the texts of `fencepost.core.search_keys`; no index leads to them

    @property
    def finds_nothing(self) -> bool:
        """Whether the jobs that are allowed exclude every run."""
        return self.jobs is not None and (not self.jobs or (self.job is not None and self.job not in self.jobs))

    @staticmethod
    def failed(job: str | None = None) -> RunFilter:
        """Runs that were given up (state ``dead``)."""
        return RunFilter(job=job, states=("dead",))

    @staticmethod
    def held(job: str | None = None) -> RunFilter:
        """Runs that wait for a person to release them."""
        return RunFilter(job=job, states=("waiting",), waits_for="person")


EVERY_RUN = RunFilter()
_LIVE = ("queued", "running", "waiting")
_FEW_OF_SCHEDULE = 10_000  # at most so many are sorted; of more, the newest are soon found by looking back
_FEW_JOBS = 32  # more are asked for at once: as many statements would take longer than sorting
_EQUAL = ("job", "waits_for", "schedule", "queue", "node", "requested_by", "retry_of", "exclusive_key")


def runs(
    database: Database,
    wanted: RunFilter = EVERY_RUN,
    *,
    before_id: int | None = None,
    after_id: int | None = None,
    limit: int = 100,
    waits_for_anything: bool = False,
    connection: LedgerConnection | None = None,
) -> list[RunRow]:
    """Return one page of the runs that match `wanted`.

    `waits_for_anything`: of the state ``waiting``, also those that wait for what only a newer version knows. No index
    leads to them.
    """
    id_ = database.tables.run.c.id
    if wanted.finds_nothing:
        return []

    def work(cursor: Cursor) -> list[RunRow]:
        are_few = _are_few(database, cursor, wanted)
        filtered = _filtered(database, whole_runs(database), wanted, along_ids=not are_few)
        query = _within(database, cursor, filtered, wanted)
        if before_id is not None:
            query = query.where(id_ < before_id)
        if after_id is not None:
            query = query.where(id_ > after_id)
        is_rising = after_id is not None
        queries = _by_state(database, query, wanted, is_rising, are_few=are_few, for_anything=waits_for_anything)
        pages = [database.rows(cursor, page.limit(limit)) for page in queries]
        found = sorted((RunRow(*row) for page in pages for row in page), key=_id_of, reverse=not is_rising)
        if wanted.params:
            found = [row for row in found if has_values(row.params, wanted.params)]
        return found[:limit]

    return (connection or database).read(work)


_id_of = attrgetter("id")


def _are_few(database: Database, cursor: Cursor, wanted: RunFilter) -> bool:
    """Whether a schedule has so few runs that they are better sorted than looked for among all, from the newest back.

    Their index has no ids. Statistics do not help: they know nothing of a schedule that is due once a year.
    """
    if wanted.retry_of is not None:
        return True
    if wanted.schedule is None or wanted.ids is not None:
        return False
    c = database.tables.run.c
    some = select(c.due_at).where(c.schedule == wanted.schedule).limit(_FEW_OF_SCHEDULE).subquery()
    [row] = database.rows(cursor, select(func.count()).select_from(some))
    return int(row[0]) < _FEW_OF_SCHEDULE


def _by_state(
    database: Database,
    query: Select[Any],
    wanted: RunFilter,
    is_rising: bool,
    *,
    are_few: bool,
    for_anything: bool,
) -> list[Select[Any]]:
    """Build one query per state, with the state as a literal, so that partial indexes can be used.

    Few runs are live, compared with history, and an index finds them. For those states, and where there are few for
    another reason, the database sorts the matches instead of scanning all runs in the order of ids: the ``+ 0`` keeps
    it from using the primary key.
    """
    c = database.tables.run.c
    sorted_: Any = c.id + literal(0, literal_execute=True)
    if not wanted.states and are_few:
        return [_of_jobs(database, query, wanted).order_by(sorted_ if is_rising else sorted_.desc())]
    if not wanted.states:
        return [each.order_by(c.id if is_rising else c.id.desc()) for each in _by_job(database, query, wanted)]
    queries = []
    for state in sorted(set(wanted.states)):
        is_short = state in _LIVE or are_few
        order: Any = sorted_ if is_short else c.id
        for of_state in _in_state(database, query, wanted, state, for_anything=for_anything):
            split = [_of_jobs(database, of_state, wanted)] if is_short else _by_job(database, of_state, wanted)
            queries += [each.order_by(order if is_rising else order.desc()) for each in split]
    return queries


def _in_state(
    database: Database, query: Select[Any], wanted: RunFilter, state: str, *, for_anything: bool
) -> list[Select[Any]]:
    """Restrict a query to a state. What waits is in several partial indexes, one for each thing that is waited for."""
    c = database.tables.run.c
    of_state = query.where(c.state == _as_literal(state))
    if state != RunState.WAITING or wanted.waits_for is not None or for_anything:
        return [of_state]
    return [of_state.where(c.waits_for == _as_literal(each)) for each in WaitsFor]


def _by_job(database: Database, query: Select[Any], wanted: RunFilter) -> list[Select[Any]]:
    """Ask for each of a few allowed jobs by itself: so the index of a job's runs gives them in their order."""
    if wanted.job is not None:
        return [_along_job(database, query, wanted)]
    if wanted.jobs is None or wanted.ids is not None or len(wanted.jobs) > _FEW_JOBS:
        return [_of_jobs(database, query, wanted)]
    c = database.tables.run.c
    return [_along_job(database, query.where(c.job == job), wanted) for job in sorted(wanted.jobs)]


def _along_job(database: Database, query: Select[Any], wanted: RunFilter) -> Select[Any]:
    """Have MariaDB begin in the middle of a job's runs, where the page begins: it would read all that come after it.

    It does so by both columns of the index, if it does not find a range of ids by the primary key before.
    """
    if wanted.ids is not None or wanted.schedule is not None or wanted.retry_of is not None:
        return query
    return query.with_hint(database.tables.run, "IGNORE INDEX (PRIMARY)", "mysql")


def _of_jobs(database: Database, query: Select[Any], wanted: RunFilter) -> Select[Any]:
    if wanted.jobs is None or wanted.job is not None:
        return query
    return query.where(of_jobs(database, wanted.jobs))


def of_jobs(database: Database, jobs: Collection[str]) -> Any:
    """Return the condition that a run is of these jobs, for queries in which another index leads to few runs.

    The index of jobs is hidden from the query planner: SQLite takes it for the better one, and reads all runs of these
    jobs in history.
    """
    return func.coalesce(database.tables.run.c.job, "").in_(sorted(jobs))


def _within(database: Database, cursor: Cursor, query: Select[Any], wanted: RunFilter) -> Select[Any]:
    """Restrict the query to the range of ids of the requested time, so that the rest of history is not scanned."""
    id_ = database.tables.run.c.id
    if wanted.since_us is not None:
        query = query.where(id_ >= first_id_at(database, cursor, wanted.since_us - SLACK_US))
    if wanted.until_us is not None:
        query = query.where(id_ < end_id_at(database, cursor, wanted.until_us + SLACK_US))
    return query


def run(
    database: Database,
    run_id: int,
    *,
    jobs: Collection[str] | None = None,
    connection: LedgerConnection | None = None,
) -> RunRow:
    """Return one run, or raise `NoSuchRun`; also if it is of none of `jobs`."""
    if jobs is not None and not jobs:
        raise NoSuchRun(run_id)
    return (connection or database).read(lambda cursor: run_row(database, cursor, run_id, jobs=jobs))


def run_row(
    database: Database, cursor: Cursor, run_id: int, *, jobs: Collection[str] | None = None, for_update: bool = False
) -> RunRow:
    """Return one run within the transaction of `cursor`. With `for_update`, lock its row until the transaction ends."""
    query = whole_runs(database).where(database.tables.run.c.id == run_id)
    if jobs is not None:
        query = query.where(database.tables.run.c.job.in_(sorted(jobs)))
    found = database.rows(cursor, query.with_for_update() if for_update else query)
    if not found:
        raise NoSuchRun(run_id)
    return RunRow(*found[0])


def attempts(database: Database, run_id: int, *, connection: LedgerConnection | None = None) -> list[AttemptRow]:
    """Return the attempts of a run that have ended, in order."""
    table = database.tables.attempt
    columns = (table.c[name] for name in AttemptRow._fields)
    query = select(*columns).where(table.c.run_id == run_id).order_by(table.c.number)
    return (connection or database).read(lambda cursor: [AttemptRow(*row) for row in database.rows(cursor, query)])


def why(
    database: Database,
    schedule_id: str,
    at_us: int,
    *,
    jobs: Collection[str] | None = None,
    connection: LedgerConnection | None = None,
    limit: int = 20,
) -> list[RunRow]:
    """Return the runs that cover a due time of a schedule, in the order of creation: the tick's own run comes first.

    A run can cover several due times (a coalesced run, or a stretch of skipped ones). A repetition with other
    parameters is not among them: it was never due. An empty list means that the due
    time was not planned, or that its run is of none of `jobs`: the schedule was another job's then.
    """
    c = database.tables.run.c
    # Stretches of a schedule do not overlap: runs that cover a time are among the first that are due at it or later.
    after = whole_runs(database).where(c.schedule == schedule_id, c.due_at >= at_us).order_by(c.due_at, c.id)
    query = after.limit(limit)
    if jobs is not None:
        query = query.where(c.job.in_(sorted(jobs)))
    # A stretch is due at its end: runs that were requested for due times within it come before it, however many.
    planned = after.where(func.substr(c.origin_key, 1, 5) == "tick:").limit(1)

    def work(cursor: Cursor) -> list[RunRow]:
        found = {row.id: row for each in (query, planned) for row in map(RunRow._make, database.rows(cursor, each))}
        allowed = (row for row in found.values() if jobs is None or row.job in jobs)
        covering = (row for row in allowed if _covers(row, at_us) and not is_own_root(row.id, row.root))
        return sorted(covering, key=_id_of)

    return (connection or database).read(work)


def is_own_root(run_id: int, root: str | None) -> bool:
    """Whether a run is noted as the root of itself (`ledger.roots`): it repeats another one with other parameters."""
    return root is not None and root.startswith(f"{run_id}@")


def _covers(row: RunRow, at_us: int) -> bool:
    first = row.due_at if row.first_due_at is None else row.first_due_at
    return first is not None and first <= at_us


def counts(
    database: Database, wanted: RunFilter = EVERY_RUN, *, connection: LedgerConnection | None = None
) -> dict[str, int]:
    """Return the number of runs in each state. Without a filter, this scans all stored runs."""
    state = database.tables.run.c.state
    if wanted.finds_nothing:
        return {}

    def work(cursor: Cursor) -> dict[str, int]:
        counted = select(state, func.count())
        if wanted.jobs is not None and wanted.job is None:
            counted = counted.where(database.tables.run.c.job.in_(sorted(wanted.jobs)))
        query = _within(database, cursor, _filtered(database, counted, wanted), wanted)
        names = sorted(set(wanted.states))
        queries = [each for name in names for each in _in_state(database, query, wanted, name, for_anything=False)] or [
            query
        ]
        found: Counter[str] = Counter()
        for each in queries:
            found.update({row[0]: int(row[1]) for row in database.rows(cursor, each.group_by(state).order_by(state))})
        return dict(found)

    return (connection or database).read(work)


def runs_of_state(
    database: Database,
    jobs: Collection[str] | None,
    state: str,
    conditions: Sequence[Any],
    *,
    order: Any = None,
    limit: int,
) -> list[RunRow]:
    """Return runs of a state that few runs have, read by the index of that state; of `jobs`, None for all."""
    c = database.tables.run.c
    if jobs is not None and not jobs:
        return []
    query = whole_runs(database).where(c.state == _as_literal(state), *conditions).limit(limit)
    if jobs is not None:
        query = query.where(of_jobs(database, jobs))
    ordered = query if order is None else query.order_by(order)
    return database.read(lambda cursor: [RunRow(*row) for row in database.rows(cursor, ordered)])


def running_by_node(database: Database, *, jobs: Collection[str] | None = None) -> dict[str, int]:
    """Return the number of running runs of each node, by node id."""
    c = database.tables.run.c
    query = select(c.node, func.count()).where(c.state == _as_literal("running"), c.node.is_not(None)).group_by(c.node)
    if jobs is not None:
        query = query.where(of_jobs(database, jobs))
    return database.read(lambda cursor: {row[0]: int(row[1]) for row in database.rows(cursor, query)})


def _as_literal(word: str) -> Any:
    """Return a state, or a value of `waits_for`, as a literal in the statement. Unknown words stay parameters."""
    return literal(word, literal_execute=word in _KNOWN_WORDS)


_KNOWN_WORDS = frozenset(RunState) | frozenset(WaitsFor)


def whole_runs(database: Database) -> Select[Any]:
    return select(*(database.tables.run.c[name] for name in RunRow._fields))


def _filtered(database: Database, query: Select[Any], wanted: RunFilter, *, along_ids: bool = False) -> Select[Any]:
    """Restrict a query to what is wanted. `along_ids`: it reads a page in the order of ids.

    Then SQLite does not get to see that there is an index of schedules: it would read and sort all runs of one.
    """
    c = database.tables.run.c
    for name in _EQUAL:
        if (value := getattr(wanted, name)) is not None:
            is_hidden = name == "schedule" and along_ids and not database.dialect.weighs_sorting
            column = func.coalesce(c[name], "") if is_hidden else c[name]
            query = query.where(column == (_as_literal(value) if name == "waits_for" else value))
    if wanted.ids is not None:
        query = query.where(c.id.in_(wanted.ids))
    for name, text in (wanted.params or {}).items():  # fewer rows are read: what they really have is compared later
        query = query.where(or_(*(c.params.contains(each, autoescape=True) for each in spellings(name, text))))
    if wanted.since_us is not None:
        query = query.where(c.created_at >= wanted.since_us)
    if wanted.until_us is not None:
        query = query.where(c.created_at < wanted.until_us)
    return query
