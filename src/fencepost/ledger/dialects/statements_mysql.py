"""The most frequent statements on MySQL and MariaDB, where UPDATE has no RETURNING: rows are locked, then changed.

At READ COMMITTED, InnoDB locks the rows that a statement finds and no gaps. STRAIGHT_JOIN makes it begin with the rows
that were passed, and FORCE INDEX with the index that has the order. Otherwise it might read, and so lock, a whole table
that it estimates to be small.
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import attrgetter

from fencepost.core.runs import Claim
from fencepost.ledger.dialects.dialect import Cursor, Dialect
from fencepost.ledger.dialects.statements import (
    CLAIM_WIDTH,
    ClaimRequest,
    EndingRows,
    Match,
    Taken,
    TransactionStatements,
    claim_rank,
    listed,
)

_FIND = """
SELECT {ranked_columns} FROM {run} r{claimable}
WHERE r.state = 'queued' AND r.queue = %s AND r.available_at <= %s AND {texts:r.job}{gate} AND {not_ended}
  AND {unpaused:%s %s}
ORDER BY {claim_order:r} LIMIT {limit}{skip_locked}
"""

_GATE = " AND (r.exclusive_key IS NULL OR {texts:r.exclusive_key})"

_START = """
UPDATE {run} SET state = 'running', node = %s, started_at = %s, token = greatest(token + 1, %s),
  attempts = attempts + 1 WHERE {ints:id}
"""

# The columns that are passed for an ending, and the field of each.
_OF_ENDING = {
    "id=int": "run_id",
    "attempt=int": "attempt",
    "token=int": "token",
    "state=text": "state",
    "outcome=text": "outcome",
    "delay_us=int": "delay_us",
    "took_us=int": "took_us",
    "error_code=text": "error_code",
    "error=text": "error",
    "trace=text": "trace",
    "result=text": "result",
    "why=text": "why",
}
_PASSED = attrgetter(*_OF_ENDING.values())
_ENDED = "{rows:e " + " ".join(_OF_ENDING) + " waits_for=text ended_at=int}"
_IS_OURS = "r.id = e.id AND r.token = e.token AND r.attempts = e.attempt AND r.state = 'running'"
_IS_AGAIN = "e.state IN ('queued', 'waiting') AND r.cancel_requested_at IS NULL"

_LOCK = f"""
SELECT r.id FROM {{rows:e id=int attempt=int token=int}} STRAIGHT_JOIN {{run}} r FORCE INDEX (PRIMARY) ON {_IS_OURS}
{{for_update}}
"""

_KEEP = f"""
INSERT INTO {{attempt}} (run_id, number, node, token, started_at, ended_at, took_us, outcome, error_code, error, trace)
SELECT r.id, r.attempts, r.node, r.token, r.started_at, e.ended_at, e.took_us, e.outcome, e.error_code, e.error, e.trace
FROM {_ENDED} STRAIGHT_JOIN {{run}} r FORCE INDEX (PRIMARY) ON {_IS_OURS} WHERE e.outcome IS NOT NULL
"""

# In an UPDATE of two tables the order of assignments is undefined: none may depend on a column that another changes.
_END = f"""
UPDATE {_ENDED} STRAIGHT_JOIN {{run}} r FORCE INDEX (PRIMARY) ON r.id = e.id SET
  r.state = CASE WHEN e.state IN ('queued', 'waiting') AND r.cancel_requested_at IS NOT NULL THEN 'cancelled'
    ELSE e.state END,
  r.waits_for = CASE WHEN {_IS_AGAIN} THEN e.waits_for END,
  r.node = CASE WHEN e.outcome IS NULL THEN NULL ELSE r.node END,
  r.started_at = CASE WHEN e.outcome IS NULL THEN NULL ELSE r.started_at END,
  r.progress = CASE WHEN {_IS_AGAIN} THEN NULL ELSE r.progress END,
  r.progress_note = CASE WHEN {_IS_AGAIN} THEN NULL ELSE r.progress_note END,
  r.available_at = CASE WHEN {_IS_AGAIN} THEN e.ended_at + e.delay_us ELSE r.available_at END,
  r.ended_at = CASE WHEN {_IS_AGAIN} THEN NULL ELSE e.ended_at END,
  r.attempts = r.attempts - (e.outcome IS NULL),
  r.failures = r.failures + (e.outcome IS NOT NULL AND e.outcome IN ('failed', 'timed_out')),
  r.crashes = r.crashes + (e.outcome IS NOT NULL AND e.outcome = 'lost'),
  r.error_code = e.error_code, r.error = e.error, r.result = e.result, r.why = e.why
"""


class HotMysql(TransactionStatements):
    """The statements for MySQL and MariaDB."""

    key = "`key`"
    by = "`by`"

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self.fields["claimable"] = f" FORCE INDEX ({dialect.url.prefix}run_claim)"
        self.fields["ready"] = f" FORCE INDEX ({dialect.url.prefix}schedule_ready)"

    def among_ints(self, column: str) -> str:
        """Compare with a list, which the driver expands."""
        return f"{column} IN %s"

    def among_texts(self, column: str) -> str:
        """Compare with a list, which the driver expands."""
        return f"{column} IN %s"

    def ints(self, numbers: Collection[int]) -> tuple[int, ...]:
        return tuple(numbers)

    def texts(self, words: Collection[str]) -> tuple[str, ...]:
        """Return a list. MySQL has no empty list, so an empty one becomes a list with the empty text."""
        return tuple(words) or ("",)

    def update_from(self, table: str, *, source: str, on: Match, sets: Mapping[str, str]) -> str:
        """Return an UPDATE of a join."""
        changes = ", ".join(f"r.{column} = {value}" for column, value in sets.items())
        return f"UPDATE {source} STRAIGHT_JOIN {{{table}}} r FORCE INDEX (PRIMARY) ON {on} SET {changes}"

    def end(self, cursor: Cursor, endings: EndingRows) -> tuple[int, int]:
        """Lock the runs whose attempts are still current, insert their attempts, then update them."""
        now_us = self.now_us(cursor)
        rows = endings.rows
        named = listed([(row.run_id, row.attempt, row.token) for row in rows])
        ours = {run_id for (run_id,) in self.rows(cursor, _LOCK, named)}
        if not ours:
            return now_us, 0
        waits_for = endings.waits_for or [None] * len(rows)
        ended = [(*_PASSED(row), word, now_us) for row, word in zip(rows, waits_for, strict=True) if row.run_id in ours]
        text = listed(ended)
        self.change(cursor, _KEEP, text)
        self.change(cursor, _END, text)
        return now_us, len(ended)

    def _take(self, cursor: Cursor, wanted: ClaimRequest) -> Taken:
        now_us = self.now_us(cursor)
        found = self._found(cursor, wanted, now_us)
        free = [each for each in found if each.exclusive_key is None]
        keyed = [(each.run_id, each.exclusive_key) for each in found if each.exclusive_key is not None]
        if free:
            self.change(cursor, _START, wanted.node, now_us, now_us, self.ints([claim.run_id for claim in free]))
        return Taken(now_us, [_started(claim, now_us) for claim in free], keyed)

    def _found(self, cursor: Cursor, wanted: ClaimRequest, now_us: int) -> list[Claim]:
        gate = () if wanted.keys is None else (self.texts(wanted.keys),)
        template = _FIND.replace("{limit}", str(wanted.limit)).replace("{gate}", "" if wanted.keys is None else _GATE)
        given = (self.texts(wanted.jobs), *gate, wanted.node)
        rows = [
            row for queue in wanted.queues for row in self.rows(cursor, template, queue, now_us, *given, queue, now_us)
        ]
        if len(wanted.queues) > 1:
            rows.sort(key=claim_rank)
        return [Claim(*row[:CLAIM_WIDTH]) for row in rows[: wanted.limit]]


def _started(found: Claim, now_us: int) -> Claim:
    """Return the run as it is after the UPDATE."""
    token = max(found.token + 1, now_us)
    return found._replace(attempt=found.attempt + 1, token=token, claimed_at_us=now_us)
