"""From times to ids: where in a table the rows begin that were made at some time. Ids rise with time, nearly.

There is no index on these times, because each would cost time at every insertion. A row with a lower id may have been
made up to `SLACK_US` later than the next ones, so a caller searches that much further, and compares the times as well.
"""

from __future__ import annotations

from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, statements_for

SLACK_US = 60_000_000
_FEW = 1_000  # ids between which the rest is read at once
_FIRST_STEP = 256
_FIRST = "SELECT r.id, r.{at} FROM {{{table}}} r ORDER BY r.id LIMIT 1"
_LAST = "SELECT r.id, r.{at} FROM {{{table}}} r ORDER BY r.id DESC LIMIT 1"
_FROM = "SELECT r.id, r.{at} FROM {{{table}}} r WHERE r.id >= %s ORDER BY r.id LIMIT 1"
_BETWEEN = "SELECT r.id, r.{at} FROM {{{table}}} r WHERE r.id > %s AND r.id < %s ORDER BY r.id"


def first_id_at(
    database: Database, cursor: Cursor, at_us: int, *, table: str = "run", column: str = "created_at"
) -> int:
    """Return the id of about the first row that was made at `at_us` or later; the one after the last if none was."""
    return _Search(statements_for(database), cursor, at_us, table, column).found()


class _Search:
    """Guesses a place by the share of time, steps away from it until it is passed, and halves what is left."""

    def __init__(self, statements: LedgerStatements, cursor: Cursor, at_us: int, table: str, column: str) -> None:
        self._statements = statements
        self._cursor = cursor
        self._at_us = at_us
        self._names = {"table": table, "at": column}
        self._low = self._high = 0
        self._low_at = self._high_at = 0

    def found(self) -> int:
        ends = [row for each in (_FIRST, _LAST) for row in self._rows(each)]
        if not ends:
            return 0
        (self._low, self._low_at), (self._high, self._high_at) = ends
        if self._low_at >= self._at_us:
            return self._low
        if self._high_at < self._at_us:
            return self._high + 1
        self._narrow()
        between = self._rows(_BETWEEN, self._low, self._high)
        return next((id_ for id_, at in between if at >= self._at_us), self._high)

    def _narrow(self) -> None:
        """Bring both ends near: what is made at `low` is too old, what comes from `high` on is not."""
        step, guess = _FIRST_STEP, self._guess()
        while self._high - self._low > _FEW:
            is_older = self._probe(min(max(guess, self._low + 1), self._high - 1))
            guess = self._low + step if is_older else self._high - step
            if step * 4 > self._high - self._low:
                guess = (self._low + self._high) // 2
            step *= 8

    def _guess(self) -> int:
        share = (self._at_us - self._low_at) / max(self._high_at - self._low_at, 1)
        return self._low + int((self._high - self._low) * share)

    def _probe(self, guess: int) -> bool:
        """Move one end to the guess; return whether it was the lower one."""
        [(id_, at)] = self._rows(_FROM, guess)
        if id_ < self._high and at < self._at_us:
            self._low, self._low_at = id_, at
            return True
        self._high = guess
        return False

    def _rows(self, sql: str, *values: int) -> list[tuple[int, int]]:
        found = self._statements.rows(self._cursor, sql.format(**self._names), *values)
        return [(int(row[0]), int(row[1])) for row in found]
