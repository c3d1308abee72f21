"""Pruning: history is kept as long as the retention says, and removed in small batches.

**Promises.** Runs that have not ended, and schedules, are never removed: the identity of ticks does not depend on
history. The attempts of a run, its logs and its search keys are removed with it. A repetition is kept as long as the
run that it repeats, and as any earlier repetition of the same run, so that these are not repeated again; its root stays
known when all earlier runs are gone. The origin key of a run is free once the run is gone. A run that was requested
under a key of the user (`enqueue(key=)`) is kept for at least as long as `requests` says, so that the same request is
recognized until then. Idempotency keys are removed when they expire, answers to requests after a day, figures of jobs
after five weeks, acknowledgements when what they speak of is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import and_, delete, exists, or_, select, update

from fencepost.core.duration import Duration, seconds
from fencepost.core.identity import REQUEST
from fencepost.errors import InvalidSetting
from fencepost.ledger.acknowledging import prune_acknowledged
from fencepost.ledger.answers import prune_answers
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.figures import prune_figures
from fencepost.ledger.history import run_row
from fencepost.ledger.id_order import end_id_at
from fencepost.ledger.log_chunks import remove_of_runs, with_logs
from fencepost.ledger.roots import root_of
from fencepost.ledger.search_keys import remove_keys
from fencepost.ledger.tables import Tables
from fencepost.schema.effects import effect_tables

DAY_S = 86400.0
_LOGS_AT_ONCE = 20  # runs: up to 5 MB of logs
_ENDINGS = ("succeeded", "dead", "cancelled", "skipped", "misfired")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended runs and other records are kept, in seconds from their end; None means for ever."""

    succeeded: float | None = 30 * DAY_S
    dead: float | None = 180 * DAY_S
    cancelled: float | None = 30 * DAY_S
    skipped: float | None = 30 * DAY_S
    misfired: float | None = 30 * DAY_S
    journal: float | None = 365 * DAY_S
    nodes: float | None = 30 * DAY_S
    keys: float | None = 30 * DAY_S  # exclusive keys that no run holds
    requests: float | None = 30 * DAY_S  # `enqueue(key=)`: the run of a key, however it ended

    @staticmethod
    def of(**given: Duration | None) -> Retention:
        """Parse what users write: ``succeeded="7d"``; ``None`` or ``"forever"`` keeps."""
        unknown = sorted(set(given) - set(Retention.__slots__))
        if unknown:
            known = ", ".join(Retention.__slots__)
            raise InvalidSetting(f"retention knows no {unknown[0]!r}; it knows: {known}")
        return Retention(**{name: _kept(name, value) for name, value in given.items()})


def _kept(name: str, value: Duration | None) -> float | None:
    return None if value is None or value == "forever" else seconds(value, what=f"retention of {name}")


def prune(database: Database, connection: LedgerConnection | None, retention: Retention, *, limit: int = 500) -> int:
    """Remove one batch of what has been kept long enough; return the number of rows, without attempts.

    Zero means that there is nothing to remove now.
    """
    place = connection or database
    now_us = database.now_us(connection)
    removed = _prune_runs(database, place, retention, now_us=now_us, limit=limit)
    removed += _prune_journal(database, place, _before(retention.journal, now_us), limit)
    removed += _prune_keys(database, place, _before(retention.keys, now_us), limit)
    removed += _prune_expired(database, place, now_us, limit)
    removed += prune_answers(database, place, now_us, limit)
    removed += prune_acknowledged(database, place, now_us, limit)
    removed += prune_figures(database, place, now_us, limit)
    return removed + _prune_nodes(database, place, _before(retention.nodes, now_us), limit)


def _before(kept_s: float | None, now_us: int) -> int | None:
    return None if kept_s is None else now_us - round(kept_s * 1_000_000)


def _prune_runs(
    database: Database, place: LedgerConnection | Database, retention: Retention, *, now_us: int, limit: int
) -> int:
    limits = {state: _before(getattr(retention, state), now_us) for state in _ENDINGS}
    cuts = {state: before for state, before in limits.items() if before is not None}
    if not cuts:
        return 0
    c = database.tables.run.c
    over = or_(*(and_(c.state == state, c.ended_at < before) for state, before in cuts.items()))
    old = and_(over, _is_not_recognized(database, _before(retention.requests, now_us)))
    # So that the runs that are too young, which are nearly all, are not scanned.
    end_id = place.read(lambda cursor: end_id_at(database, cursor, max(cuts.values())))
    free = (~_repeats_what_is_there(database.tables), ~_comes_after_others(database.tables))
    query = select(c.id).where(c.id < end_id, old, *free).order_by(c.id).limit(limit)

    def work(cursor: Cursor) -> int:
        ids = [row[0] for row in database.rows(cursor, query)]
        return _remove(database, cursor, ids, old) if ids else 0

    _prune_logs(database, place, place.read(lambda cursor: [row[0] for row in database.rows(cursor, query)]))
    return place.write(work)


def _prune_logs(database: Database, place: LedgerConnection | Database, ids: list[int]) -> None:
    """Remove the logs of runs that are about to be removed, a few at a time: there may be a hundred megabytes."""
    logged = place.read(lambda cursor: with_logs(database, cursor, ids)) if ids else []
    for start in range(0, len(logged), _LOGS_AT_ONCE):
        some = logged[start : start + _LOGS_AT_ONCE]
        place.write(lambda cursor, some=some: remove_of_runs(database, cursor, some))  # type: ignore[misc]


def _is_not_recognized(database: Database, before_us: int | None) -> Any:
    """Return the condition that a run has no request key that may be used once more."""
    c = database.tables.run.c
    has_no_key = or_(c.origin_key.is_(None), c.origin_key.notlike(f"{REQUEST}%"))
    return has_no_key if before_us is None else or_(has_no_key, c.ended_at < before_us)


@lru_cache(maxsize=8)
def _repeats_what_is_there(tables: Tables) -> Any:
    """Whether a run repeats one that is kept: so a chain of repetitions is removed from its beginning, one by one."""
    before = tables.run.alias("before")
    return exists().where(before.c.id == tables.run.c.retry_of)


@lru_cache(maxsize=8)
def _comes_after_others(tables: Tables) -> Any:
    """Whether an earlier repetition of the same run is kept, which this one may replace."""
    run, before = tables.run, tables.run.alias("earlier")
    return exists().where(before.c.root == run.c.root, before.c.id < run.c.id)


def _note_roots(database: Database, cursor: Cursor, ids: list[int]) -> None:
    """Store the root in repetitions that older versions created, before the runs that lead to it are removed."""
    run = database.tables.run
    query = select(run.c.id, run.c.retry_of).where(run.c.retry_of.in_(ids), run.c.root.is_(None))
    for run_id, before in database.rows(cursor, query):
        root = root_of(database, cursor, run_row(database, cursor, before)).to_text()
        database.change(cursor, update(run).where(run.c.id == run_id).values(root=root))


def _remove(database: Database, cursor: Cursor, ids: list[int], old: Any) -> int:
    run, attempt = database.tables.run, database.tables.attempt
    _note_roots(database, cursor, ids)
    database.change(cursor, delete(attempt).where(attempt.c.run_id.in_(ids)))
    remove_of_runs(database, cursor, ids)
    remove_keys(database, cursor, ids)
    # Checked again: nothing leaves a terminal state, but a mistake here would cost most.
    return database.change(cursor, delete(run).where(run.c.id.in_(ids), old))


def _prune_journal(database: Database, place: LedgerConnection | Database, before_us: int | None, limit: int) -> int:
    if before_us is None:
        return 0
    table = database.tables.journal
    query = select(table.c.id, table.c.at).order_by(table.c.id).limit(limit)

    def work(cursor: Cursor) -> int:
        old = [row[0] for row in database.rows(cursor, query) if row[1] < before_us]
        return database.change(cursor, delete(table).where(table.c.id.in_(old))) if old else 0

    return place.write(work)


def _prune_keys(database: Database, place: LedgerConnection | Database, before_us: int | None, limit: int) -> int:
    """Remove free keys that were last taken so long ago that the clock makes the next token higher in any case.

    Rows that are locked are skipped. A row with token 0 is just being created.
    """
    if before_us is None:
        return 0
    table = database.tables.exclusive
    old = (table.c.run_id.is_(None), table.c.token.between(1, before_us))
    query = select(table.c.key).where(*old).order_by(table.c.key).limit(limit).with_for_update(skip_locked=True)

    def work(cursor: Cursor) -> int:
        keys = [row[0] for row in database.rows(cursor, query)]
        return database.change(cursor, delete(table).where(table.c.key.in_(keys), *old)) if keys else 0

    return place.write(work)


def _prune_expired(database: Database, place: LedgerConnection | Database, now_us: int, limit: int) -> int:
    """Remove expired idempotency keys. In other databases of effects, operators do that."""
    table = effect_tables(database.tables.prefix, database.tables.schema).idempotency_key
    query = select(table.c.key).where(table.c.expires_at <= now_us).limit(limit).with_for_update(skip_locked=True)

    def work(cursor: Cursor) -> int:
        keys = [row[0] for row in database.rows(cursor, query)]
        over = (table.c.key.in_(keys), table.c.expires_at <= now_us)
        return database.change(cursor, delete(table).where(*over)) if keys else 0

    return place.write(work)


def _prune_nodes(database: Database, place: LedgerConnection | Database, before_us: int | None, limit: int) -> int:
    """Remove ended nodes, except those whose runs have still to be reaped."""
    if before_us is None:
        return 0
    node, run = database.tables.node, database.tables.run
    has_runs = exists().where(run.c.node == node.c.id, run.c.state == "running")
    ended = or_(node.c.left_at < before_us, node.c.dead_at < before_us)
    query = select(node.c.id).where(ended, ~has_runs).order_by(node.c.id).limit(limit)

    def work(cursor: Cursor) -> int:
        ids = [row[0] for row in database.rows(cursor, query)]
        return database.change(cursor, delete(node).where(node.c.id.in_(ids))) if ids else 0

    return place.write(work)
