"""Pruning: history is kept as long as the retention says, and removed in small batches.

**Promises.** Nothing that has not ended is removed, and no schedule: tick identity does not depend on kept history. The
attempts of a run go with it. A repetition is kept as long as what it repeats, and as any earlier repetition of the same
run, so that nobody repeats these once more; what it goes back to stays known when all before it is gone. A run's
origin key is free again once the run is gone; one that was asked for under a key of the user's own
(`enqueue(key=)`) is kept for as long as `requests` says at least, so that the same request is recognized until then.
Of idempotency keys those go whose time is over, and answers to requests after a day.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import and_, delete, exists, or_, select, update

from fencepost.core.duration import Duration, seconds
from fencepost.core.identity import REQUEST
from fencepost.errors import InvalidSetting
from fencepost.ledger.answers import prune_answers
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.history import first_id_at, run_row
from fencepost.ledger.roots import root_of
from fencepost.ledger.tables import Tables
from fencepost.schema.effects import effect_tables

DAY_S = 86400.0
_ENDINGS = ("succeeded", "dead", "cancelled", "skipped", "misfired")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long what ended is kept, in seconds from its end; None means for ever."""

    succeeded: float | None = 30 * DAY_S
    dead: float | None = 180 * DAY_S
    cancelled: float | None = 30 * DAY_S
    skipped: float | None = 30 * DAY_S
    misfired: float | None = 30 * DAY_S
    journal: float | None = 365 * DAY_S
    nodes: float | None = 30 * DAY_S
    keys: float | None = 30 * DAY_S  # exclusive keys that nobody has
    requests: float | None = 30 * DAY_S  # `enqueue(key=)`: the run that stands for a key, whatever became of it

    @staticmethod
    def of(**given: Duration | None) -> Retention:
        """Read what users write: ``succeeded="7d"``; ``None`` or ``"forever"`` keeps."""
        unknown = sorted(set(given) - set(Retention.__slots__))
        if unknown:
            known = ", ".join(Retention.__slots__)
            raise InvalidSetting(f"retention knows no {unknown[0]!r}; it knows: {known}")
        return Retention(**{name: _kept(name, value) for name, value in given.items()})


def _kept(name: str, value: Duration | None) -> float | None:
    return None if value is None or value == "forever" else seconds(value, what=f"retention of {name}")


def prune(database: Database, connection: LedgerConnection | None, retention: Retention, *, limit: int = 500) -> int:
    """Remove one batch of what has been kept long enough; return how many rows that were, attempts aside.

    Zero means that there is nothing left to remove now.
    """
    place = connection or database
    now_us = database.now_us(connection)
    removed = _prune_runs(database, place, retention, now_us=now_us, limit=limit)
    removed += _prune_journal(database, place, _before(retention.journal, now_us), limit)
    removed += _prune_keys(database, place, _before(retention.keys, now_us), limit)
    removed += _prune_expired(database, place, now_us, limit)
    removed += prune_answers(database, place, now_us, limit)
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
    # So that what is too young is not read through, which would be nearly all.
    end_id = place.read(lambda cursor: first_id_at(database, cursor, max(cuts.values())))
    free = (~_repeats_what_is_there(database.tables), ~_comes_after_others(database.tables))
    query = select(c.id).where(c.id < end_id, old, *free).order_by(c.id).limit(limit)

    def work(cursor: Cursor) -> int:
        ids = [row[0] for row in database.rows(cursor, query)]
        return _remove(database, cursor, ids, old) if ids else 0

    return place.write(work)


def _is_not_recognized(database: Database, before_us: int | None) -> Any:
    """Whether a run stands for no request with a key that somebody may make once more."""
    c = database.tables.run.c
    has_no_key = or_(c.origin_key.is_(None), c.origin_key.notlike(f"{REQUEST}%"))
    return has_no_key if before_us is None else or_(has_no_key, c.ended_at < before_us)


@lru_cache(maxsize=8)
def _repeats_what_is_there(tables: Tables) -> Any:
    """Whether a run repeats one that is kept: so a chain of repetitions goes from its beginning, one by one."""
    before = tables.run.alias("before")
    return exists().where(before.c.id == tables.run.c.retry_of)


@lru_cache(maxsize=8)
def _comes_after_others(tables: Tables) -> Any:
    """Whether another repetition of the same run is kept that was made before this one, which may stand for it."""
    run, before = tables.run, tables.run.alias("earlier")
    return exists().where(before.c.root == run.c.root, before.c.id < run.c.id)


def _note_roots(database: Database, cursor: Cursor, ids: list[int]) -> None:
    """Note in repetitions that older versions made what they go back to, before what leads there is gone."""
    run = database.tables.run
    query = select(run.c.id, run.c.retry_of).where(run.c.retry_of.in_(ids), run.c.root.is_(None))
    for run_id, before in database.rows(cursor, query):
        root = root_of(database, cursor, run_row(database, cursor, before)).to_text()
        database.change(cursor, update(run).where(run.c.id == run_id).values(root=root))


def _remove(database: Database, cursor: Cursor, ids: list[int], old: Any) -> int:
    run, attempt = database.tables.run, database.tables.attempt
    _note_roots(database, cursor, ids)
    database.change(cursor, delete(attempt).where(attempt.c.run_id.in_(ids)))
    # Asked again: nothing leaves a terminal state, but this is where a mistake would cost most.
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
    """Remove free keys that were given last so long ago that the next token is higher in any case, by the clock.

    Rows that somebody is at are passed over. A row with token 0 is being made.
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
    """Remove idempotency keys whose time is over; in databases of effects elsewhere that is an operator's work."""
    table = effect_tables(database.tables.prefix, database.tables.schema).idempotency_key
    query = select(table.c.key).where(table.c.expires_at <= now_us).limit(limit).with_for_update(skip_locked=True)

    def work(cursor: Cursor) -> int:
        keys = [row[0] for row in database.rows(cursor, query)]
        over = (table.c.key.in_(keys), table.c.expires_at <= now_us)
        return database.change(cursor, delete(table).where(*over)) if keys else 0

    return place.write(work)


def _prune_nodes(database: Database, place: LedgerConnection | Database, before_us: int | None, limit: int) -> int:
    """Remove nodes that ended, but none that runs are still to be taken from."""
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
