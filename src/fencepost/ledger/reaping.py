"""Reaping: the runs of a dead node are marked as lost, and then are queued again, fail, or wait for a person.

Call it only for dead nodes. The node's session decides that, not this module. Reaping is level-triggered: any node may
reap, at any time, whatever is still running under the dead node's name.

**Promises.** A lost attempt gets a row and an entry in the journal. Its run changes in the same transaction, and only
if it was still running under that node's name; a late finish then changes nothing. Its exclusive key is freed, and the
next in line is queued. A run that was being cancelled is cancelled, whatever its policy says about crashes.

**What counts as a crash.** The end of a node does not prove that one of its runs caused it, and one event may end
several nodes in a row. So a run counts such a loss at most once in `once_in_us`, the ttl of a session: a run that kills
its node needs longer than that to be claimed again and to kill the next one. The loss of a worker always counts; that
is decided elsewhere.

**Locks.** Rows of `exclusive` by key, waiting; then rows of `run`, skipping those that are locked: by a finish that
came in time, or by a fenced transaction about to commit. The next call of `reap` finds them.
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from typing import NamedTuple, Protocol

from fencepost.core.ending import fate_of_lost
from fencepost.core.noted import Noted
from fencepost.core.retry import GiveUpLost, HoldForPerson, Rerun
from fencepost.core.runs import Ending
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import EndingRows, LedgerStatements, rounded, statements_for
from fencepost.ledger.finishing import free_keys, lock_keys
from fencepost.ledger.run_notes import RunNote, note_runs


class OnLoss(Protocol):
    """Decides what happens to a run whose attempt was lost; `crashes` includes this loss, if it counts. Pure."""

    def __call__(self, job: str, crashes: int, /) -> Rerun | GiveUpLost | HoldForPerson: ...


class Reaped(NamedTuple):
    """A run whose attempt was lost, and its new state."""

    run_id: int
    job: str
    attempt: int
    token: int
    state: str
    reason: str


class _Left(NamedTuple):
    """A run that a dead node has left running."""

    run_id: int
    exclusive_key: str | None
    job: str
    attempt: int
    token: int
    crashes: int
    cancel_requested_at: int | None
    counts: bool = True


_COLUMNS = "r.id, r.exclusive_key, r.job, r.attempts, r.token, r.crashes, r.cancel_requested_at"
_FIND = f"SELECT {_COLUMNS} FROM {{run}} r WHERE r.state = 'running' AND r.node = %s ORDER BY r.id"
_LOCK = f"""
SELECT {_COLUMNS} FROM {{run}} r WHERE {{was:r.state}} = 'running' AND {{was:r.node}} = %s AND {{ints:r.id}}
ORDER BY r.id{{skip_locked}}
"""


def reap(
    connection: LedgerConnection, *, node: str, limit: int, decide: OnLoss, once_in_us: int = 0, counts: bool = True
) -> list[Reaped]:
    """Reap up to `limit` runs of a dead node; call it until it returns none. `counts`: losses count as crashes."""
    statements, once = statements_for(connection), once_in_us if counts else None
    return connection.write(
        lambda cursor: _reap(cursor, statements, node, rounded(limit), decide=decide, once_in_us=once)
    )


def _reap(
    cursor: Cursor, statements: LedgerStatements, node: str, limit: int, *, decide: OnLoss, once_in_us: int | None
) -> list[Reaped]:
    found = [_Left(*row) for row in statements.rows(cursor, f"{_FIND} LIMIT {limit}", node)]
    if not found:
        return []
    keys = sorted({each.exclusive_key for each in found if each.exclusive_key is not None})
    holders = lock_keys(cursor, statements, keys) if keys else {}
    ids = statements.ints([each.run_id for each in found])
    left = [_Left(*row) for row in statements.rows(cursor, _LOCK, node, ids)]
    if not left:
        return []
    left = (
        [each._replace(counts=False) for each in left]
        if once_in_us is None
        else _counted(cursor, statements, left, once_in_us)
    )
    fates = [_fate(each, decide) for each in left]
    endings = [ending for ending, _ in fates]
    now_us, _ = statements.end(cursor, EndingRows(endings, [waits_for for _, waits_for in fates]))
    if uncounted := [each.run_id for each in left if not each.counts]:
        statements.change(cursor, _UNCOUNT, statements.ints(uncounted))
    free_keys(cursor, statements, endings, holders)
    notes = [RunNote(each.run_id, each.token, Noted.RUN_LOST, each.why, node) for each in endings]
    note_runs(cursor, statements, notes, now_us=now_us)
    if any(ending.state == "queued" for ending in endings):
        statements.notify(cursor)
    return [
        Reaped(each.run_id, each.job, each.attempt, each.token, ending.state, ending.why or "")
        for each, ending in zip(left, endings, strict=True)
    ]


LOST_AGAIN = "lost again"
"""The error code of a loss that does not count."""
# An attempt without an error code is a loss that counted, and was not the loss of a worker.
_LAST_LOSS = """
SELECT a.run_id, max(a.ended_at) FROM {attempt} a
WHERE {ints:a.run_id} AND a.outcome = 'lost' AND a.error_code IS NULL GROUP BY a.run_id
"""
_UNCOUNT = "UPDATE {run} SET crashes = crashes - 1 WHERE {ints:id} AND crashes > 0"


def _counted(cursor: Cursor, statements: LedgerStatements, left: list[_Left], once_in_us: int | None) -> list[_Left]:
    """Mark which losses count as crashes: not those soon after one that did. With None, none counts."""
    if once_in_us is None:
        return [each._replace(counts=False) for each in left]
    if not (suspects := [each.run_id for each in left if each.crashes > 0]):
        return left
    now_us = statements.now_us(cursor)
    soon = {
        run_id
        for run_id, at_us in statements.rows(cursor, _LAST_LOSS, statements.ints(suspects))
        if 0 <= now_us - at_us < once_in_us  # negative if the clock went back: then it counts
    }
    return [each._replace(counts=each.run_id not in soon) for each in left]


def _fate(left: _Left, decide: OnLoss) -> tuple[Ending, str | None]:
    """Return the ending of the attempt, and what its run waits for, or None."""
    decision = decide(left.job, left.crashes + left.counts)
    fate = fate_of_lost(decision, is_cancel_requested=left.cancel_requested_at is not None)
    ending = Ending(
        left.run_id,
        left.attempt,
        left.token,
        fate.state,
        fate.outcome,
        error_code=fate.error_code or (None if left.counts else LOST_AGAIN),
        error=fate.why if fate.error_code else "its node died",
        why=fate.why,
        exclusive_key=left.exclusive_key,
    )
    return ending, "person" if fate.is_held else None
