"""Finishing: attempts end, and their runs with them or not.

**Promises.** An ending is believed if the run is still running under the same attempt and token, and changes nothing
otherwise: what was given to somebody else, or has ended, stays as it is. An attempt that ended has a row of its own
from then on; the two happen together. An exclusive key is free as soon as its run runs no more, and the most urgent
of those that wait for it is queued in the same transaction. A run that somebody asked to cancel is not tried again.

A finish may be repeated: an ending that was believed before is recognized by its attempt's row and not reported as
refused.

**Locks.** Rows of `exclusive` by key, then rows of `run` by id. A finish waits for both. Who else changes running rows
(the reaper) passes over those that are locked; who locks a single row (progress, cancel, a fenced transaction about to
commit) waits for nothing after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from fencepost.core.events import What
from fencepost.core.runs import Ending
from fencepost.ledger.desk import Desk
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.hot import Endings, Hot, hot_words, listed, written
from fencepost.ledger.promoting import promote

# A back-off up to this long is spent in the queue; a longer one leaves it, so that the queue stays short.
HORIZON_US = 2_000_000


class Finished(NamedTuple):
    """What became of endings. `refused`: runs that were no longer ours. `promoted`: how many could be queued now."""

    now_us: int
    refused: list[int]
    promoted: int


def finish(desk: Desk, endings: Sequence[Ending]) -> Finished:
    """End these attempts. Those whose run is no longer ours are left out, reported, and noted in the journal."""
    hot = hot_words(desk)
    if not endings:
        return Finished(desk.read(hot.now_us), [], 0)
    ordered = sorted(endings, key=itemgetter(0))
    keys = sorted({ending.exclusive_key for ending in ordered if ending.exclusive_key is not None})
    rows = written(ordered, horizon_us=HORIZON_US)
    promoted = 0
    lost = [ending for ending in ordered if ending.outcome == "lost"]
    if keys or lost or any(ending.outcome is None for ending in ordered):
        now_us, count, promoted = desk.write(lambda cursor: _end(cursor, hot, rows, keys=keys, lost=lost))
    else:
        now_us, count = hot.end_alone(desk, rows)
    refused = [] if count == len(ordered) else _refused(desk, hot, ordered, now_us)
    return Finished(now_us, refused, promoted)


def _end(
    cursor: Cursor, hot: Hot, rows: Endings, *, keys: Sequence[str], lost: Sequence[Ending]
) -> tuple[int, int, int]:
    """End attempts in one transaction with what is noted of those whose workers were lost.

    What is handed back is for others to take: those who sleep are woken.
    """
    if lost:
        _note_lost(cursor, hot, lost)
    if any(ending.outcome is None for ending in rows.rows):
        hot.notify(cursor)
    return end_keyed(cursor, hot, rows, keys) if keys else (*hot.end(cursor, rows), 0)


_NOTE_LOST = """
INSERT INTO {journal} (at, what, job, run_id, schedule, node, token, reason)
SELECT e.at, e.what, r.job, r.id, r.schedule, r.node, r.token, e.reason
FROM {rows:e id=int token=int attempt=int at=int what=text reason=text}, {run} r
WHERE r.id = e.id AND r.token = e.token AND r.attempts = e.attempt AND {was:r.state} = 'running'
"""


def _note_lost(cursor: Cursor, hot: Hot, lost: Sequence[Ending]) -> None:
    """Note the attempts whose workers were lost, before they end: those of them that are still ours."""
    at_us = hot.now_us(cursor)
    rows = [[e.run_id, e.token, e.attempt, at_us, What.RUN_LOST, _how_lost(e)] for e in lost]
    hot.change(cursor, _NOTE_LOST, listed(rows))


def _how_lost(ending: Ending) -> str:
    return "; ".join(text for text in (ending.error, ending.why) if text)


_LOCK_KEYS = "SELECT x.key, x.run_id, x.token FROM {exclusive} x WHERE {texts:x.key} ORDER BY x.key{for_update}"
_FREE = "UPDATE {exclusive} SET run_id = NULL WHERE {texts:{key}}"


def end_keyed(cursor: Cursor, hot: Hot, endings: Endings, keys: Sequence[str]) -> tuple[int, int, int]:
    """End attempts, some of which have these keys; return the time, how many ended, and how many were promoted."""
    holders = lock_keys(cursor, hot, keys)
    now_us, count = hot.end(cursor, endings)
    return now_us, count, free_keys(cursor, hot, endings.rows, holders)


def lock_keys(cursor: Cursor, hot: Hot, keys: Sequence[str]) -> dict[str, tuple[int | None, int]]:
    """Lock the rows of these keys, in their order; return who has each, under which token."""
    return {key: (run_id, token) for key, run_id, token in hot.rows(cursor, _LOCK_KEYS, hot.texts(keys))}


def free_keys(
    cursor: Cursor, hot: Hot, endings: Sequence[Ending], holders: Mapping[str, tuple[int | None, int]]
) -> int:
    """Free the keys that these runs had under these tokens, and promote the next of each; return how many.

    A key that was given to somebody else meanwhile carries another token, and stays with them.
    """
    freed = [
        ending.exclusive_key
        for ending in endings
        if ending.exclusive_key is not None and holders.get(ending.exclusive_key) == (ending.run_id, ending.token)
    ]
    if not freed:
        return 0
    hot.change(cursor, _FREE, hot.texts(freed))
    return promote(cursor, hot, freed)


_KEPT = "SELECT a.run_id, a.number, a.token, a.outcome FROM {attempt} a WHERE {ints:a.run_id}"
_NOTE = """
INSERT INTO {journal} (at, what, job, run_id, schedule, token, reason)
SELECT e.at, e.what, (SELECT r.job FROM {run} r WHERE r.id = e.id), e.id,
  (SELECT r.schedule FROM {run} r WHERE r.id = e.id), e.token, e.reason
FROM {rows:e id=int token=int at=int what=text reason=text}
"""


def _refused(desk: Desk, hot: Hot, endings: Sequence[Ending], now_us: int) -> list[int]:
    """Return the runs whose ending was not believed, now or when it was first told; each is noted in the journal.

    A claim that is handed back and is no longer ours has lost nothing.
    """
    ids = hot.ints([ending.run_id for ending in endings])
    kept = set(map(tuple, desk.read(lambda cursor: hot.rows(cursor, _KEPT, ids))))
    refused = [each for each in endings if each.outcome is not None and _identity(each) not in kept]
    if refused:
        rows = listed([[each.run_id, each.token, now_us, What.RUN_REFUSED, _why(each)] for each in refused])
        desk.write(lambda cursor: hot.change(cursor, _NOTE, rows))
    return [each.run_id for each in refused]


def _identity(ending: Ending) -> tuple[int, int, int, str | None]:
    return ending.run_id, ending.attempt, ending.token, ending.outcome


def _why(ending: Ending) -> str:
    return f"attempt {ending.attempt} ended as {ending.outcome} when the run was no longer its node's"
