"""The most frequent statements on SQLite, where one writer at a time has the whole file and no rows are locked."""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.core.runs import Claim, Ending
from fencepost.ledger.dialects.dialect import Cursor, Dialect
from fencepost.ledger.dialects.statements import ClaimRequest, EndingRows, Match, Taken, TransactionStatements, clean

# The plus sign keeps the planner from using another index than that of queued runs.
_FIND = """
SELECT {ranks}, r.id, r.exclusive_key FROM {run} r
WHERE r.state = 'queued' AND r.queue = %s AND r.available_at <= %s AND {texts:+r.job}{gate} AND {not_ended}
  AND {unpaused:%s %s}
ORDER BY {claim_order:r} LIMIT {limit}
"""

_GATE = " AND (r.exclusive_key IS NULL OR {texts:r.exclusive_key})"

_START = """
UPDATE {run} AS r SET state = 'running', node = %s, attempts = r.attempts + 1, started_at = %s,
  token = max(r.token + 1, %s) WHERE {ints:r.id}
"""

_READ = "SELECT {columns} FROM {run} r WHERE {ints:r.id}"

_IS_OURS = "r.id = :id AND r.token = :token AND r.attempts = :attempt AND r.state = 'running'"
_IS_AGAIN = ":state IN ('queued', 'waiting') AND r.cancel_requested_at IS NULL"

_KEEP = f"""
INSERT INTO {{attempt}} (run_id, number, node, token, started_at, ended_at, took_us, outcome, error_code, error, trace)
SELECT r.id, r.attempts, r.node, r.token, r.started_at, :now, :took_us, :outcome, :error_code, :error, :trace
FROM {{run}} r WHERE :outcome IS NOT NULL AND {_IS_OURS}
"""

_END = f"""
UPDATE {{run}} AS r SET
  state = CASE WHEN :state IN ('queued', 'waiting') AND r.cancel_requested_at IS NOT NULL THEN 'cancelled'
    ELSE :state END,
  waits_for = CASE WHEN {_IS_AGAIN} THEN :waits_for END,
  node = CASE WHEN :outcome IS NULL THEN NULL ELSE r.node END,
  started_at = CASE WHEN :outcome IS NULL THEN NULL ELSE r.started_at END,
  progress = CASE WHEN {_IS_AGAIN} THEN NULL ELSE r.progress END,
  progress_note = CASE WHEN {_IS_AGAIN} THEN NULL ELSE r.progress_note END,
  available_at = CASE WHEN {_IS_AGAIN} THEN :now + :delay_us ELSE r.available_at END,
  ended_at = CASE WHEN {_IS_AGAIN} THEN NULL ELSE :now END,
  attempts = r.attempts - (:outcome IS NULL),
  failures = r.failures + (:outcome IS NOT NULL AND :outcome IN ('failed', 'timed_out')),
  crashes = r.crashes + (:outcome IS NOT NULL AND :outcome = 'lost'),
  error_code = :error_code, error = :error, result = :result, why = :why
WHERE {_IS_OURS}
"""


class _Found(NamedTuple):
    """What `_FIND` selects after the values by which it is sorted."""

    run_id: int
    exclusive_key: str | None


class HotSqlite(TransactionStatements):
    """The statements for SQLite."""

    greatest = "max"

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self.fields["clock"] = "%s"
        self.fields["ready"] = f" INDEXED BY {dialect.url.prefix}schedule_ready"

    def clock(self) -> tuple[int, ...]:
        """Return the machine's time."""
        return (self.dialect.runtime.wall_us(),)

    def among_ints(self, column: str) -> str:
        """Compare with a JSON list."""
        return f"{column} IN (SELECT value FROM json_each(%s))"

    def among_texts(self, column: str) -> str:
        """Compare with a JSON list."""
        return self.among_ints(column)

    def update_from(self, table: str, *, source: str, on: Match, sets: Mapping[str, str]) -> str:
        changes = ", ".join(f"{column} = {value}" for column, value in sets.items())
        return f"UPDATE {{{table}}} AS r SET {changes} FROM {source} WHERE {on}"

    def end(self, cursor: Cursor, endings: EndingRows) -> tuple[int, int]:
        """Insert the attempts, then update the runs, with executemany."""
        now_us = self.now_us(cursor)
        waits_for = endings.waits_for or [None] * len(endings.rows)
        rows = [_named(row, word, now_us) for row, word in zip(endings.rows, waits_for, strict=True)]
        cursor.executemany(self.sql(_KEEP), rows)
        cursor.executemany(self.sql(_END), rows)
        return now_us, cursor.rowcount

    def _take(self, cursor: Cursor, wanted: ClaimRequest) -> Taken:
        now_us = self.now_us(cursor)
        found = self._found(cursor, wanted, now_us)
        free = [each.run_id for each in found if each.exclusive_key is None]
        keyed = [(each.run_id, each.exclusive_key) for each in found if each.exclusive_key is not None]
        if not free:
            return Taken(now_us, [], keyed)
        ids = self.ints(free)
        self.change(cursor, _START, wanted.node, now_us, now_us, ids)
        claims = {claim.run_id: claim for claim in map(Claim._make, self.rows(cursor, _READ, ids))}
        return Taken(now_us, [claims[run_id] for run_id in free], keyed)

    def _found(self, cursor: Cursor, wanted: ClaimRequest, now_us: int) -> list[_Found]:
        gate: Sequence[Any] = () if wanted.keys is None else (self.texts(wanted.keys),)
        template = _FIND.replace("{limit}", str(wanted.limit)).replace("{gate}", "" if wanted.keys is None else _GATE)
        given = (self.texts(wanted.jobs), *gate, wanted.node)
        rows = [
            row for queue in wanted.queues for row in self.rows(cursor, template, queue, now_us, *given, queue, now_us)
        ]
        if len(wanted.queues) > 1:
            rows.sort()
        return [_Found(*row[-2:]) for row in rows[: wanted.limit]]


def _named(row: Ending, waits_for: str | None, now_us: int) -> dict[str, Any]:
    return {
        "id": row.run_id,
        "attempt": row.attempt,
        "token": row.token,
        "state": row.state,
        "outcome": row.outcome,
        "delay_us": row.delay_us,
        "took_us": row.took_us,
        "error_code": clean(row.error_code),
        "error": clean(row.error),
        "trace": clean(row.trace),
        "result": clean(row.result),
        "why": clean(row.why),
        "waits_for": waits_for,
        "now": now_us,
    }
