"""Adopting: a process that joined again goes on with runs that it began under an identity it has lost.

A session that ran out is never renewed, so after an outage the process is somebody else. The work it kept up meanwhile
is still its own if nobody has taken it: the run's row says so, and that row is the fence. Token and attempt stay what
they are; only the name of the node changes, and from then on the new session answers for the run.

**Promises.** A run is adopted only if it is still running, under that token, in the name of one of the `formers`: by
compare-and-set, so of a reaper and an adopter one comes first, and the other finds nothing. Repeating it after an
answer that was lost gives the same answer. Each adoption is in the journal.

**Locks.** Rows of `run`, by their ids, waiting: for a finish, a reaper or a fenced transaction about to commit.
"""

from __future__ import annotations

from collections.abc import Collection

from fencepost.core.noted import Noted
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, Match, listed, statements_for
from fencepost.ledger.run_notes import RunNote, note_runs

Key = tuple[int, int]
"""A run and the token under which it is ours."""

_FIND = """
SELECT r.id, r.token, r.node FROM {run} r
WHERE {ints:r.id} AND {was:r.state} = 'running' ORDER BY r.id{for_update}
"""
_SOURCE = "{rows:e id=int token=int node=text}"
_SAME = Match("id", "id", "r.token = e.token AND r.state = 'running'")


def adopt(connection: LedgerConnection, *, formers: Collection[str], node: str, runs: Collection[Key]) -> set[Key]:
    """Take over what `formers` were running, in the name of `node`; return those of `runs` that are now its own."""
    if not runs:
        return set()
    statements = statements_for(connection)
    return connection.write(lambda cursor: _adopt(cursor, statements, formers, node, frozenset(runs)))


def _adopt(
    cursor: Cursor, statements: LedgerStatements, formers: Collection[str], node: str, runs: frozenset[Key]
) -> set[Key]:
    found = statements.rows(cursor, _FIND, statements.ints(sorted(run_id for run_id, _ in runs)))
    us = {*formers, node}
    ours = {(run_id, token): by for run_id, token, by in found if (run_id, token) in runs and by in us}
    orphans = {key: former for key, former in ours.items() if former != node}
    if orphans:
        update = statements.update_from("run", source=_SOURCE, on=_SAME, sets={"node": "e.node"})
        statements.change(cursor, update, listed([[*key, node] for key in orphans]))
        now_us = statements.now_us(cursor)
        reason = "its node lost touch with the ledger, kept it up and joined again; before, it was "
        notes = [RunNote(*key, Noted.RUN_RESUMED, reason + former, node) for key, former in orphans.items()]
        note_runs(cursor, statements, notes, now_us=now_us)
    return set(ours)
