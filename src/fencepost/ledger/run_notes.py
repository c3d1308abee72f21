"""Journal entries about many runs at once, in the transaction of the change that they describe. See `journal`."""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.core.noted import Noted
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, listed


class RunNote(NamedTuple):
    """A note about one run. With `attempt`, it is written only if that attempt is still running, with its own node."""

    run_id: int
    token: int
    what: Noted
    reason: str | None
    node: str | None = None
    attempt: int | None = None


_INTO = "INSERT INTO {journal} (at, what, job, run_id, schedule, node, token, reason) "
_NOTE = f"""{_INTO}
SELECT e.at, e.what, (SELECT r.job FROM {{run}} r WHERE r.id = e.id), e.id,
  (SELECT r.schedule FROM {{run}} r WHERE r.id = e.id), e.node, e.token, e.reason
FROM {{rows:e id=int token=int what=text reason=text node=text attempt=int at=int}}
"""
_NOTE_RUNNING = f"""{_INTO}
SELECT e.at, e.what, r.job, r.id, r.schedule, r.node, r.token, e.reason
FROM {{rows:e id=int token=int what=text reason=text node=text attempt=int at=int}}, {{run}} r
WHERE r.id = e.id AND r.token = e.token AND r.attempts = e.attempt AND {{was:r.state}} = 'running'
"""


def note_runs(cursor: Cursor, statements: LedgerStatements, notes: Sequence[RunNote], *, now_us: int) -> None:
    """Add these notes. If a run was removed, its note has neither job nor schedule."""
    statements.change(cursor, _NOTE, listed([(*note, now_us) for note in notes]))


def note_running(cursor: Cursor, statements: LedgerStatements, notes: Sequence[RunNote], *, now_us: int) -> None:
    """Add the notes whose `attempt` is still running under the given token."""
    statements.change(cursor, _NOTE_RUNNING, listed([(*note, now_us) for note in notes]))
