"""Lateness: runs that do not end by the time that their job promises (its SLA). Each is noted once.

**Promises.** A run past its `sla_at` gets one entry in the journal, however many nodes search at once: a node locks the
row of the run, and checks again, before it adds the entry. Nothing else changes: a late run goes on.
"""

# ruff: noqa: S608 - table names are checked identifiers, states are our own words, all values are parameters

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from fencepost.core.noted import Noted
from fencepost.core.tick import spelled_us
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, statements_for
from fencepost.ledger.run_notes import RunNote, note_runs

_BATCH = 100  # late runs of each state in one search, and notes in its transaction; the next search finds the rest
_MISSED = str(Noted.SLA_MISSED)


class Late(NamedTuple):
    """A run that is late."""

    run_id: int
    job: str
    state: str
    node: str | None
    token: int
    sla_at_us: int
    ended_at_us: int | None

    @property
    def reason(self) -> str:
        """By when the run should have ended, and its current state."""
        ended = f"it ended at {spelled_us(self.ended_at_us)}" if self.ended_at_us else f"it is still {self.state}"
        return f"it should have ended by {spelled_us(self.sla_at_us)}, and {ended}"


_COLUMNS = "r.id, r.job, r.state, r.node, r.token, r.sla_at, r.ended_at"
_UNNOTED = "NOT EXISTS (SELECT 1 FROM {journal} j WHERE j.run_id = r.id AND j.what = %s)"
# The conditions match those of the partial indexes. The job is hidden from the query planner: few runs are live.
_LIVE = (
    "r.state = 'queued'",
    "r.state = 'running'",
    "r.state = 'waiting' AND r.waits_for = 'time'",
    "r.state = 'waiting' AND r.waits_for = 'key'",
    "r.state = 'waiting' AND r.waits_for = 'person'",
    "r.state = 'waiting' AND r.waits_for = 'node'",
)
_FIND = [
    f"SELECT {_COLUMNS} FROM {{run}} r WHERE {state} AND {{texts:coalesce(r.job, '')}} AND r.sla_at < %s "
    f"AND {_UNNOTED} LIMIT {_BATCH}"
    for state in _LIVE
]
_FIND_ENDED = (
    f"SELECT {_COLUMNS} FROM {{run}} r WHERE {{ints:r.id}} AND r.sla_at < coalesce(r.ended_at, %s) AND {_UNNOTED}"
)
_LOCK = "SELECT r.id FROM {run} r WHERE {ints:r.id} ORDER BY r.id{skip_locked}"
_NOTED = "SELECT j.run_id FROM {journal} j WHERE {ints:j.run_id} AND j.what = %s"


def note_late(connection: LedgerConnection, *, jobs: Collection[str]) -> list[Late]:
    """Note runs of these jobs that are late and have not ended; return those that are noted for the first time."""
    statements = statements_for(connection)

    def find(cursor: Cursor) -> list[Late]:
        asked = (statements.texts(jobs), statements.now_us(cursor), _MISSED)
        found = (Late(*row) for query in _FIND for row in statements.rows(cursor, query, *asked))
        return list({late.run_id: late for late in found}.values())  # a run may change its state between two queries

    return _noted(connection, statements, connection.read(find))


def note_late_ends(connection: LedgerConnection, *, run_ids: Collection[int]) -> list[Late]:
    """Note those of these runs that ended late; return those that are noted for the first time."""
    statements = statements_for(connection)

    def find(cursor: Cursor) -> list[Late]:
        asked = (statements.ints(sorted(run_ids)), statements.now_us(cursor), _MISSED)
        return [Late(*row) for row in statements.rows(cursor, _FIND_ENDED, *asked)]

    return _noted(connection, statements, connection.read(find)) if run_ids else []


def _noted(connection: LedgerConnection, statements: LedgerStatements, found: list[Late]) -> list[Late]:
    return connection.write(lambda cursor: _note(cursor, statements, found)) if found else []


def _note(cursor: Cursor, statements: LedgerStatements, found: list[Late]) -> list[Late]:
    """Note the runs whose rows are not locked, and that have no entry yet; later calls find the others."""
    ids = statements.ints(sorted(late.run_id for late in found))
    mine = {row[0] for row in statements.rows(cursor, _LOCK, ids)}
    mine -= {row[0] for row in statements.rows(cursor, _NOTED, ids, _MISSED)}
    fresh = [late for late in found if late.run_id in mine]
    if fresh:
        now_us = statements.now_us(cursor)
        notes = [RunNote(late.run_id, late.token, Noted.SLA_MISSED, late.reason, late.node) for late in fresh]
        note_runs(cursor, statements, notes, now_us=now_us)
    return fresh
