"""The count at the end of the demo, made without the engine.

The due times are computed from the schedules. The writes are counted in the application's own tables. The result of
each due time is read from the rows of runs, with plain SQL. Then the three are compared:

- a due time without a run is *missing*; one with two runs is a *duplicate*
- a run that succeeded and has no row of its own is a *lost write*; a second row, or a row of a run that did not
  succeed, is a *duplicate*
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from fencepost.core.identity import request_key
from fencepost.core.schedule import Schedule
from fencepost.demo.plan import CHUNKS, REQUESTED, SCHEDULES, notice_key
from fencepost.sql.sqlite import opened_for_reading

_MOST_DUES = 100_000  # of one job: 27 hours of one that is due every second; what is due later is not counted
_FATES = {"succeeded": "ran", "misfired": "misfired", "skipped": "skipped", "dead": "failed", "cancelled": "failed"}


class Row(NamedTuple):
    """The columns of a run that the count needs."""

    id: int
    job: str
    state: str
    schedule: str | None
    origin_key: str | None
    first_due_us: int | None
    due_us: int | None


@dataclass(slots=True)
class Tally:
    """The results of one job's due times, or of the requests for it."""

    job: str
    due: int = 0
    ran: int = 0
    misfired: int = 0
    skipped: int = 0
    failed: int = 0
    open: int = 0
    missing: int = 0
    duplicates: int = 0
    lost_writes: int = 0

    @property
    def is_right(self) -> bool:
        """Whether every due time has one result, and every success one effect."""
        return not (self.missing or self.duplicates or self.lost_writes or self.open or self.failed)


@dataclass(frozen=True, slots=True)
class Books:
    """All rows that the count uses."""

    runs: tuple[Row, ...]
    effects: Counter[int]  # run id → rows in demo_effect
    settled_dues: Counter[int]  # due time → rows of `settle` in demo_effect
    chunks: Mapping[int, Counter[int]]  # run id → chunk → rows in demo_chunk
    began: Mapping[str, int]  # schedule → the time after which its due times count


def read_books(path: str) -> Books:
    """Read the ledger's file with nothing but the driver."""
    connection = opened_for_reading(path, 10.0)
    try:
        return _read(connection)
    finally:
        connection.close()


def recount(books: Books, *, until_us: int, reports: int) -> list[Tally]:
    """Count every job: due times up to `until_us`, and requests."""
    tallies = [_scheduled(job, schedule, books, until_us) for job, schedule in SCHEDULES.items() if job in books.began]
    wanted = {request_key(notice_key(due_us)) for due_us in books.settled_dues if due_us <= until_us}
    notices = [row for row in books.runs if row.job == "notify" and row.origin_key in wanted]
    asked = [row for row in books.runs if row.job == "report"]
    return [
        *tallies,
        _of_requests("notify", notices, len(wanted), books),
        _of_requests("report", asked, reports, books),
    ]


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum."""
    whole = Tally("together")
    for tally in tallies:
        for field in fields(Tally)[1:]:
            setattr(whole, field.name, getattr(whole, field.name) + getattr(tally, field.name))
    return whole


def _scheduled(job: str, schedule: Schedule, books: Books, until_us: int) -> Tally:
    dues = schedule.dues(books.began[job], until_us, limit=_MOST_DUES)
    rows = [row for row in books.runs if row.schedule == job]
    tally = Tally(job, due=len(dues))
    for due_us in dues:
        answers = [row for row in rows if (row.first_due_us or 0) <= due_us <= (row.due_us or 0)]
        _count_fate(tally, answers)
    _count_writes(tally, [row for row in rows if (row.due_us or 0) <= until_us], books)
    if job == "settle":
        tally.duplicates += sum(count - 1 for count in books.settled_dues.values())
    return tally


def _of_requests(job: str, rows: list[Row], expected: int, books: Books) -> Tally:
    tally = Tally(job, due=expected, missing=max(expected - len(rows), 0), duplicates=max(len(rows) - expected, 0))
    for row in rows:
        _count_fate(tally, [row])
    _count_writes(tally, rows, books)
    return tally


def _count_fate(tally: Tally, answers: list[Row]) -> None:
    if not answers:
        tally.missing += 1
        return
    tally.duplicates += len(answers) - 1
    fate = _FATES.get(answers[0].state, "open")
    setattr(tally, fate, getattr(tally, fate) + 1)


def _count_writes(tally: Tally, rows: Iterable[Row], books: Books) -> None:
    for row in rows:
        expected, found = int(row.state == "succeeded"), books.effects[row.id]
        tally.lost_writes += max(expected - found, 0)
        tally.duplicates += max(found - expected, 0)
        if row.job == "import_orders" and row.state == "succeeded":
            chunks = books.chunks.get(row.id, Counter())
            tally.lost_writes += CHUNKS - len(chunks)
            tally.duplicates += sum(count - 1 for count in chunks.values())


def _read(connection: Any) -> Books:
    runs = connection.execute(
        "SELECT id, job, state, schedule, origin_key, first_due_at, due_at FROM fencepost_run ORDER BY id"
    )
    effects = connection.execute("SELECT run_id, count(*) FROM demo_effect GROUP BY run_id")
    settled = connection.execute("SELECT due_us, count(*) FROM demo_effect WHERE job = 'settle' GROUP BY due_us")
    began = connection.execute("SELECT id, created_at FROM fencepost_schedule")
    chunks: dict[int, Counter[int]] = {}
    for run_id, chunk in connection.execute("SELECT run_id, chunk FROM demo_chunk"):
        chunks.setdefault(run_id, Counter())[chunk] += 1
    return Books(
        runs=tuple(Row(*row) for row in runs),
        effects=Counter(dict(effects.fetchall())),
        settled_dues=Counter(dict(settled.fetchall())),
        chunks=chunks,
        began=dict(began.fetchall()),
    )


JOBS = (*SCHEDULES, *REQUESTED)
