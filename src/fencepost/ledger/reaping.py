"""Reaping: what a dead node was running is given up, and run again, failed or held for a person.

Only for nodes that are dead: that is decided by their session, not here. After that it is level-triggered: whatever
still runs under the dead node's name is reaped, by whoever comes, as often as anybody comes.

**Promises.** A lost attempt has a row, and an entry in the journal; its run is changed together with them, and only
if it was still running under that node's name. A late finish then changes nothing. Its exclusive key is free, and the
next in line is queued. A run that was being cancelled is cancelled, whatever its policy says about crashes.

**Locks.** Rows of `exclusive` by key, waiting; then rows of `run`, passing over those that are locked: a finish that
came in time, or a fenced transaction about to commit. They are found by whoever reaps next.
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fencepost.core.events import What
from fencepost.core.retry import Fail, Hold, Rerun
from fencepost.core.runs import Ending
from fencepost.ledger.desk import Desk
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.hot import Endings, Hot, hot_words, listed, rounded
from fencepost.ledger.finishing import free_keys, lock_keys


class OnLoss(Protocol):
    """Decides what becomes of a run whose attempt was lost; `crashes` counts this one. Pure."""

    def __call__(self, job: str, crashes: int, /) -> Rerun | Fail | Hold: ...


class Reaped(NamedTuple):
    """A run whose attempt was lost, and its state since."""

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


_COLUMNS = "r.id, r.exclusive_key, r.job, r.attempts, r.token, r.crashes, r.cancel_requested_at"
_FIND = f"SELECT {_COLUMNS} FROM {{run}} r WHERE r.state = 'running' AND r.node = %s ORDER BY r.id"
_LOCK = f"""
SELECT {_COLUMNS} FROM {{run}} r WHERE {{was:r.state}} = 'running' AND {{was:r.node}} = %s AND {{ints:r.id}}
ORDER BY r.id{{skip_locked}}
"""


def reap(desk: Desk, *, node: str, limit: int, decide: OnLoss) -> list[Reaped]:
    """Give up to `limit` runs of a dead node up. Repeat until there are none."""
    hot = hot_words(desk)
    return desk.write(lambda cursor: _reap(cursor, hot, node, rounded(limit), decide))


def _reap(cursor: Cursor, hot: Hot, node: str, limit: int, decide: OnLoss) -> list[Reaped]:
    found = [_Left(*row) for row in hot.rows(cursor, f"{_FIND} LIMIT {limit}", node)]
    if not found:
        return []
    keys = sorted({each.exclusive_key for each in found if each.exclusive_key is not None})
    holders = lock_keys(cursor, hot, keys) if keys else {}
    ids = hot.ints([each.run_id for each in found])
    left = [_Left(*row) for row in hot.rows(cursor, _LOCK, node, ids)]
    if not left:
        return []
    fates = [_fate(each, decide) for each in left]
    endings = [ending for ending, _ in fates]
    now_us, _ = hot.end(cursor, Endings(endings, [waits_for for _, waits_for in fates]))
    free_keys(cursor, hot, endings, holders)
    _note(cursor, hot, node, endings, now_us)
    if any(ending.state == "queued" for ending in endings):
        hot.notify(cursor)
    return [
        Reaped(each.run_id, each.job, each.attempt, each.token, ending.state, ending.why or "")
        for each, ending in zip(left, endings, strict=True)
    ]


def _fate(left: _Left, decide: OnLoss) -> tuple[Ending, str | None]:
    """Return how the attempt ends, and what its run waits for, if it does."""
    state, waits_for, code, why = _next(left, decide)
    ending = Ending(
        left.run_id,
        left.attempt,
        left.token,
        state,
        "lost",
        error_code=code,
        error="its node died" if code is None else why,
        why=why,
        exclusive_key=left.exclusive_key,
    )
    return ending, waits_for


def _next(left: _Left, decide: OnLoss) -> tuple[str, str | None, str | None, str]:
    if left.cancel_requested_at is not None:
        return "cancelled", None, None, "its node died while it was being cancelled"
    match decide(left.job, left.crashes + 1):
        case Fail(code, reason):
            return "dead", None, code, reason
        case Hold(reason):
            return "waiting", "person", None, reason
        case Rerun():
            return "queued", None, None, "its node died; it is run again"


_NOTE = """
INSERT INTO {journal} (at, what, job, run_id, schedule, node, token, reason)
SELECT e.at, e.what, (SELECT r.job FROM {run} r WHERE r.id = e.id), e.id,
  (SELECT r.schedule FROM {run} r WHERE r.id = e.id), e.node, e.token, e.reason
FROM {rows:e id=int token=int at=int what=text node=text reason=text}
"""


def _note(cursor: Cursor, hot: Hot, node: str, endings: Sequence[Ending], now_us: int) -> None:
    rows = [[each.run_id, each.token, now_us, What.RUN_LOST, node, each.why] for each in endings]
    hot.change(cursor, _NOTE, listed(rows))
