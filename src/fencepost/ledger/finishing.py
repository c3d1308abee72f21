"""Finishing: attempts end, and their runs with them or not.

**Promises.** An ending is believed if the run is still running under the same attempt and token, and changes nothing
otherwise: what was given to somebody else, or has ended, stays as it is. An attempt that ended has a row of its own
from then on; the two happen together. An exclusive key is free as soon as its run runs no more, and the most urgent
of those that wait for it is queued in the same transaction. (A transaction of the user's that ends its run, under a
snapshot from before somebody began to wait, does not see them. They are queued when its end is told, which follows; if
nobody is left to tell it, by the next node that looks: `engine.stranded`.) A run that somebody asked to cancel is not
tried again.

A finish may be repeated: an ending that was believed before is recognized by its attempt's row and not reported as
refused.

**Locks.** Rows of `exclusive` by key, then rows of `run` by id. A finish waits for both. Who else changes running rows
(the reaper) passes over those that are locked; who locks a single row (progress, cancel, a fenced transaction about to
commit) waits for nothing after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import NamedTuple

from fencepost.core.noted import Noted
from fencepost.core.runs import Ending
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import EndingRows, LedgerStatements, statements_for, written
from fencepost.ledger.promoting import promote
from fencepost.ledger.run_notes import RunNote, note_running, note_runs
from fencepost.ledger.run_rows import HORIZON_US

# A back-off up to this long is spent in the queue; a longer one leaves it, so that the queue stays short.
# One shutdown says nothing of a job, and a bad day of deploys little; a run that five of them interrupted never ends.
INTERRUPTED_OFTEN = 5


class Outlasting(NamedTuple):
    """A run that shutdowns have interrupted so often in a row that it will hardly ever end."""

    run_id: int
    job: str
    times: int


class Finished(NamedTuple):
    """What became of endings. `refused`: runs that were no longer ours. `promoted`: how many could be queued now.

    `outlasting`: those that shutdowns interrupt again and again.
    """

    now_us: int
    refused: list[int]
    promoted: int
    outlasting: Sequence[Outlasting] = ()


def finish(connection: LedgerConnection, endings: Sequence[Ending]) -> Finished:
    """End these attempts. Those whose run is no longer ours are left out, reported, and noted in the journal."""
    statements = statements_for(connection)
    if not endings:
        return Finished(connection.read(statements.now_us), [], 0)
    ordered = sorted(endings, key=attrgetter("run_id"))
    keys = sorted({ending.exclusive_key for ending in ordered if ending.exclusive_key is not None})
    rows = written(ordered, horizon_us=HORIZON_US)
    promoted = 0
    lost = [ending for ending in ordered if ending.outcome == "lost"]
    if keys or lost or any(ending.outcome is None for ending in ordered):
        now_us, count, promoted = connection.write(lambda cursor: _end(cursor, statements, rows, keys=keys, lost=lost))
    else:
        now_us, count = statements.end_alone(connection, rows)
    refused = [] if count == len(ordered) else _refused(connection, statements, ordered, now_us)
    interrupted = [ending.run_id for ending in ordered if ending.outcome == "interrupted"]
    return Finished(now_us, refused, promoted, _outlasting(connection, statements, interrupted) if interrupted else ())


_OUTCOMES = """
SELECT r.id, r.job, a.outcome FROM {run} r JOIN {attempt} a ON a.run_id = r.id WHERE {ints:r.id}
ORDER BY r.id, a.number DESC
"""


def _outlasting(connection: LedgerConnection, statements: LedgerStatements, run_ids: Sequence[int]) -> list[Outlasting]:
    """Count how often in a row each of these was interrupted; return those where that says something of the job."""
    rows = connection.read(lambda cursor: statements.rows(cursor, _OUTCOMES, statements.ints(run_ids)))
    lately = [
        Outlasting(run_id, job, sum(1 for _ in takewhile(lambda outcome: outcome == "interrupted", outcomes)))
        for (run_id, job), outcomes in _grouped(rows).items()
    ]
    return [each for each in lately if each.times >= INTERRUPTED_OFTEN]


def _grouped(rows: Sequence[tuple[int, str, str]]) -> dict[tuple[int, str], list[str]]:
    """Return the outcomes of each run, newest first."""
    outcomes: dict[tuple[int, str], list[str]] = {}
    for run_id, job, outcome in rows:
        outcomes.setdefault((run_id, job), []).append(outcome)
    return outcomes


def _end(
    cursor: Cursor, statements: LedgerStatements, rows: EndingRows, *, keys: Sequence[str], lost: Sequence[Ending]
) -> tuple[int, int, int]:
    """End attempts in one transaction with what is noted of those whose workers were lost.

    What is handed back is for others to take: those who sleep are woken.
    """
    if lost:
        _note_lost(cursor, statements, lost)
    if any(ending.outcome is None for ending in rows.rows):
        statements.notify(cursor)
    return end_keyed(cursor, statements, rows, keys) if keys else (*statements.end(cursor, rows), 0)


def _note_lost(cursor: Cursor, statements: LedgerStatements, lost: Sequence[Ending]) -> None:
    """Note the attempts whose workers were lost, before they end: those of them that are still ours."""
    notes = [RunNote(e.run_id, e.token, Noted.RUN_LOST, _how_lost(e), attempt=e.attempt) for e in lost]
    note_running(cursor, statements, notes, now_us=statements.now_us(cursor))


def _how_lost(ending: Ending) -> str:
    return "; ".join(text for text in (ending.error, ending.why) if text)


_LOCK_KEYS = "SELECT x.key, x.run_id, x.token FROM {exclusive} x WHERE {texts:x.key} ORDER BY x.key{for_update}"
_FREE = "UPDATE {exclusive} SET run_id = NULL WHERE {texts:{key}}"


def end_keyed(
    cursor: Cursor, statements: LedgerStatements, endings: EndingRows, keys: Sequence[str]
) -> tuple[int, int, int]:
    """End attempts, some of which have these keys; return the time, how many ended, and how many were promoted."""
    holders = lock_keys(cursor, statements, keys)
    now_us, count = statements.end(cursor, endings)
    return now_us, count, free_keys(cursor, statements, endings.rows, holders)


def lock_keys(cursor: Cursor, statements: LedgerStatements, keys: Sequence[str]) -> dict[str, tuple[int | None, int]]:
    """Lock the rows of these keys, in their order; return who has each, under which token."""
    return {key: (run_id, token) for key, run_id, token in statements.rows(cursor, _LOCK_KEYS, statements.texts(keys))}


def free_keys(
    cursor: Cursor,
    statements: LedgerStatements,
    endings: Sequence[Ending],
    holders: Mapping[str, tuple[int | None, int]],
) -> int:
    """Free the keys that these runs had under these tokens, and promote the next of each; return how many.

    A key that was given to somebody else meanwhile carries another token, and stays with them. One that is free already
    was given up by a transaction that may not have seen who waits for it.
    """
    freed = [
        ending.exclusive_key
        for ending in endings
        if ending.exclusive_key is not None and holders.get(ending.exclusive_key) == (ending.run_id, ending.token)
    ]
    if freed:
        statements.change(cursor, _FREE, statements.texts(freed))
    free = freed + [key for key, (holder, _) in holders.items() if holder is None]
    return promote(cursor, statements, free) if free else 0


_KEPT = "SELECT a.run_id, a.number, a.token, a.outcome FROM {attempt} a WHERE {ints:a.run_id}"


def _refused(
    connection: LedgerConnection, statements: LedgerStatements, endings: Sequence[Ending], now_us: int
) -> list[int]:
    """Return the runs whose ending was not believed, now or when it was first told; each is noted in the journal.

    A claim that is handed back and is no longer ours has lost nothing.
    """
    ids = statements.ints([ending.run_id for ending in endings])
    kept = set(map(tuple, connection.read(lambda cursor: statements.rows(cursor, _KEPT, ids))))
    refused = [each for each in endings if each.outcome is not None and _identity(each) not in kept]
    if refused:
        notes = [RunNote(each.run_id, each.token, Noted.RUN_REFUSED, _why(each)) for each in refused]
        connection.write(lambda cursor: note_runs(cursor, statements, notes, now_us=now_us))
    return [each.run_id for each in refused]


def _identity(ending: Ending) -> tuple[int, int, int, str | None]:
    return ending.run_id, ending.attempt, ending.token, ending.outcome


def _why(ending: Ending) -> str:
    return f"attempt {ending.attempt} ended as {ending.outcome} when the run was no longer its node's"
