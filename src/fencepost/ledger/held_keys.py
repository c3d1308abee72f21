"""Exclusive keys for operators: which run has each, and which runs wait for it. Reads live runs only, by index."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import statements_for


class KeyHolder(NamedTuple):
    """A running run that has an exclusive key."""

    key: str
    run_id: int
    job: str
    node: str | None
    token: int
    started_at: int | None


class KeyWaiter(NamedTuple):
    """A run that waits for an exclusive key."""

    key: str
    run_id: int
    job: str


_HOLDERS = """
SELECT r.exclusive_key, r.id, r.job, r.node, r.token, r.started_at FROM {run} r
WHERE r.state = 'running' AND """
_WAITERS = """
SELECT r.exclusive_key, r.id, r.job FROM {run} r
WHERE r.state = 'waiting' AND r.waits_for = 'key' AND """
_AFTER, _OF_JOBS, _AMONG = "r.exclusive_key > %s", " AND {texts:coalesce(r.job, '')}", "{texts:r.exclusive_key}"
_BY_KEY = " ORDER BY r.exclusive_key LIMIT %s"
_BY_TURN = " ORDER BY r.exclusive_key, r.priority DESC, r.id LIMIT %s"  # as the index of waiting runs has them


def key_holders(
    database: Database, cursor: Cursor, *, after: str, limit: int, jobs: Collection[str] | None
) -> list[KeyHolder]:
    """Return the runs that have keys after `after`, by key; with `jobs`, runs of these only."""
    return [KeyHolder(*row) for row in _read(database, cursor, (_HOLDERS, _BY_KEY), (after, limit), jobs)]


def key_waiters(
    database: Database, cursor: Cursor, *, after: str, limit: int, jobs: Collection[str] | None
) -> list[KeyWaiter]:
    """Return the runs that wait for keys after `after`, by key, the next one first; with `jobs`, of these only."""
    return [KeyWaiter(*row) for row in _read(database, cursor, (_WAITERS, _BY_TURN), (after, limit), jobs)]


def holders_of(database: Database, cursor: Cursor, keys: Collection[str]) -> list[KeyHolder]:
    """Return the runs of any job that have these keys."""
    if not keys:
        return []
    statements = statements_for(database)
    return [KeyHolder(*row) for row in statements.rows(cursor, f"{_HOLDERS}{_AMONG}", statements.texts(keys))]


def _read(
    database: Database, cursor: Cursor, words: tuple[str, str], page: tuple[str, int], jobs: Collection[str] | None
) -> list[Any]:
    if jobs is not None and not jobs:
        return []
    statements, (selected, ordered), (after, limit) = statements_for(database), words, page
    if jobs is None:
        return statements.rows(cursor, f"{selected}{_AFTER}{ordered}", after, limit)
    among = statements.texts(sorted(jobs))
    return statements.rows(cursor, f"{selected}{_AFTER}{_OF_JOBS}{ordered}", after, among, limit)
