"""Adopting: a process that has joined again continues runs that it started under a node id that it has lost.

An expired session is never renewed, so after an outage the process has a new node id. The runs that it kept going in
the meantime are still its own, unless another node has taken them. The row of the run decides that: it is the fence.
Token and attempt stay the same; only the node changes, and from then on the lease of the new session protects the run.

**Promises.** A run is adopted only if it is still running, under that token, in the name of one of the `formers`. This
is a compare-and-set: of a reaper and an adopter, the second finds nothing. Repeating the call after a lost reply
returns the same result. Each adoption is noted in the journal.

**Locks.** Rows of `run`, by id, waiting: for a finish, a reaper, or a fenced transaction about to commit.
"""

from __future__ import annotations

from collections.abc import Collection

from fencepost.core.noted import Noted
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, Match, listed, statements_for
from fencepost.ledger.run_notes import RunNote, note_runs

Key = tuple[int, int]
"""The id of a run, and the token under which it was claimed."""

_FIND = """
SELECT r.id, r.token, r.node FROM {run} r
WHERE {ints:r.id} AND {was:r.state} = 'running' ORDER BY r.id{for_update}
"""
_SOURCE = "{rows:e id=int token=int node=text}"
_SAME = Match("id", "id", "r.token = e.token AND r.state = 'running'")


def adopt(connection: LedgerConnection, *, formers: Collection[str], node: str, runs: Collection[Key]) -> set[Key]:
    """Move the runs of `formers` to `node`; return those of `runs` that are now its own."""
    if not runs:
        return set()
    statements = statements_for(connection)
    return connection.write(lambda cursor: _adopt(cursor, statements, formers, node, frozenset(runs)))


def _adopt(
    cursor: Cursor, statements: LedgerStatements, formers: Collection[str], node: str, runs: frozenset[Key]
) -> set[Key]:
    found = statements.rows(cursor, _FIND, statements.ints(sorted(run_id for run_id, _ in runs)))
    own_ids = {*formers, node}
    ours = {(run_id, token): by for run_id, token, by in found if (run_id, token) in runs and by in own_ids}
    orphans = {key: former for key, former in ours.items() if former != node}
    if orphans:
        update = statements.update_from("run", source=_SOURCE, on=_SAME, sets={"node": "e.node"})
        statements.change(cursor, update, listed([[*key, node] for key in orphans]))
        now_us = statements.now_us(cursor)
        reason = "its node could not reach the ledger, kept the run going and joined again; its former id is "
        notes = [RunNote(*key, Noted.RUN_RESUMED, reason + former, node) for key, former in orphans.items()]
        note_runs(cursor, statements, notes, now_us=now_us)
    return set(ours)
