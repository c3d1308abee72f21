"""Reads a ledger as evidence: every run and every attempt, on any database.

A run may stand for several due times (coalesced late ticks, or due times that misfired or were skipped together). It
then has the first one, the last one and their number. A running attempt has no row of its own yet. It is read from its
run, and has no end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.history import AttemptRow, RunRow
from fencepost.ledger.reaping import LOST_AGAIN
from fencepost.proof.evidence import AttemptSeen, RunSeen

_REQUEST = "request:"


def read_ledger(ledger: Database) -> tuple[tuple[RunSeen, ...], tuple[AttemptSeen, ...]]:
    """Return all runs, and all attempts including running ones, ordered by run and number."""
    runs, ended = ledger.read(lambda cursor: (_run_rows(ledger, cursor), _attempt_rows(ledger, cursor)))
    return as_seen(runs, ended)


def as_seen(runs: Sequence[RunRow], ended: Sequence[AttemptRow]) -> tuple[tuple[RunSeen, ...], tuple[AttemptSeen, ...]]:
    """Return these rows as evidence, whether they are in the ledger or were removed from it."""
    attempts = [_attempt(row) for row in ended] + [_under_way(row) for row in runs if row.state == "running"]
    attempts.sort(key=lambda each: (each.run_id, each.number))
    return tuple(map(_run, runs)), tuple(attempts)


def _run_rows(ledger: Database, cursor: Cursor) -> list[RunRow]:
    c = ledger.tables.run.c
    query = select(*(c[name] for name in RunRow._fields)).order_by(c.id)
    return [RunRow(*row) for row in ledger.rows(cursor, query)]


def _attempt_rows(ledger: Database, cursor: Cursor) -> list[AttemptRow]:
    c = ledger.tables.attempt.c
    query: Any = select(*(c[name] for name in AttemptRow._fields))
    return [AttemptRow(*row) for row in ledger.rows(cursor, query)]


def _run(row: RunRow) -> RunSeen:
    origin = row.origin_key or ""
    return RunSeen(
        id=row.id,
        job=row.job,
        state=row.state,
        schedule=row.schedule,
        due_us=row.due_at,
        from_us=row.first_due_at,
        ticks=row.ticks,
        exclusive_key=row.exclusive_key,
        request_key=origin.removeprefix(_REQUEST) if origin.startswith(_REQUEST) else None,
        payload_hash=row.params_hash,
        attempts=row.attempts,
        crashes=row.crashes,
        failures=row.failures,
        origin_key=row.origin_key,
        retry_of=row.retry_of,
        waits_for=row.waits_for,
        available_us=row.available_at,
        ended_us=row.ended_at,
    )


def _attempt(row: AttemptRow) -> AttemptSeen:
    times = (row.started_at, row.ended_at)
    return AttemptSeen(
        row.run_id, row.number, row.token, row.node or "", row.outcome, *times, counts=row.error_code != LOST_AGAIN
    )


def _under_way(row: RunRow) -> AttemptSeen:
    return AttemptSeen(row.id, row.attempts, row.token, row.node or "", None, row.started_at, None)
