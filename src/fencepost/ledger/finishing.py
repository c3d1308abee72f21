"""Finishing: attempts end, and their runs end with them or are tried again.

**Promises.** An ending is accepted if the run is still running under the same attempt and token. Otherwise it changes
nothing: a run that another node has taken, or that has ended, stays as it is. The row of the ended attempt is inserted
in the same transaction. An exclusive key is free as soon as its run is no longer running, and the most urgent run that
waits for it is queued in the same transaction. (A user's transaction that ends its run, under a snapshot from before
another run began to wait, does not see that run. It is queued when the ending is reported afterwards; if no node is
left to report it, by the next node that searches for such runs: `engine.stranded`.) A run for which cancellation is
requested is not tried again.

A finish may be repeated: an ending that was accepted before is recognized by its attempt's row and is not reported as
refused.

**Locks.** Rows of `exclusive` by key, then rows of `run` by id. A finish waits for both. The reaper, which also changes
running rows, skips those that are locked. Transactions that lock a single row (progress, cancel, a fenced transaction
about to commit) wait for nothing after that.
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

# One interruption says nothing about a job, and several on a day with many deploys say little. A run that five
# shutdowns in a row have interrupted will hardly ever end.
INTERRUPTED_OFTEN = 5


class Outlasting(NamedTuple):
    """A run that shutdowns have interrupted so often in a row that it will hardly ever end."""

    run_id: int
    job: str
    times: int


class Finished(NamedTuple):
    """The result of a finish.

    `refused` are the runs that the node no longer held. `promoted` is the number of runs that were queued because their
    key is free. `outlasting` are the runs that shutdowns interrupt again and again.
    """

    now_us: int
    refused: list[int]
    promoted: int
    outlasting: Sequence[Outlasting] = ()


def finish(connection: LedgerConnection, endings: Sequence[Ending]) -> Finished:
    """End these attempts. Those whose run the node no longer holds are left out, returned, and noted in the journal."""
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
    """Return the runs that were interrupted at least `INTERRUPTED_OFTEN` times in a row."""
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
    """End attempts, and note those whose workers were lost, in one transaction.

    If runs are handed back, other nodes are notified, because they can take them.
    """
    if lost:
        _note_lost(cursor, statements, lost)
    if any(ending.outcome is None for ending in rows.rows):
        statements.notify(cursor)
    return end_keyed(cursor, statements, rows, keys) if keys else (*statements.end(cursor, rows), 0)


def _note_lost(cursor: Cursor, statements: LedgerStatements, lost: Sequence[Ending]) -> None:
    """Note the attempts whose workers were lost, as far as this node still holds them. Call it before they end."""
    notes = [RunNote(e.run_id, e.token, Noted.RUN_LOST, _how_lost(e), attempt=e.attempt) for e in lost]
    note_running(cursor, statements, notes, now_us=statements.now_us(cursor))


def _how_lost(ending: Ending) -> str:
    return "; ".join(text for text in (ending.error, ending.why) if text)


_LOCK_KEYS = "SELECT x.key, x.run_id, x.token FROM {exclusive} x WHERE {texts:x.key} ORDER BY x.key{for_update}"
_FREE = "UPDATE {exclusive} SET run_id = NULL WHERE {texts:{key}}"


def end_keyed(
    cursor: Cursor, statements: LedgerStatements, endings: EndingRows, keys: Sequence[str]
) -> tuple[int, int, int]:
    """End attempts, some of them with these keys; return the time, how many ended, and how many runs were promoted."""
    holders = lock_keys(cursor, statements, keys)
    now_us, count = statements.end(cursor, endings)
    return now_us, count, free_keys(cursor, statements, endings.rows, holders)


def lock_keys(cursor: Cursor, statements: LedgerStatements, keys: Sequence[str]) -> dict[str, tuple[int | None, int]]:
    """Lock the rows of these keys, in order; return the holder and the token of each."""
    return {key: (run_id, token) for key, run_id, token in statements.rows(cursor, _LOCK_KEYS, statements.texts(keys))}


def free_keys(
    cursor: Cursor,
    statements: LedgerStatements,
    endings: Sequence[Ending],
    holders: Mapping[str, tuple[int | None, int]],
) -> int:
    """Free the keys that these runs held under these tokens, and promote the next run of each; return how many.

    A key that another run has taken in the meantime has another token, and stays taken. A key that is already free was
    freed by a transaction that may not have seen the runs that wait for it; so they are promoted as well.
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
    """Return the runs whose ending was accepted neither now nor in an earlier try; note each in the journal.

    Claims that are handed back are not reported: there is nothing that they could lose.
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
