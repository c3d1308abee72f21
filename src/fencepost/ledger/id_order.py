"""From times to ids: where in a table the rows begin that were made at some time. Ids rise with time, nearly.

There is no index on these times, because each would cost time at every insertion. A row with a lower id may have been
made up to `SLACK_US` later than the next ones, so a caller searches that much further, and compares the times as well.

**Promises.** Rows that were made while a clock was wrong do not mislead the search, if they are few: no row is believed
alone, also not the first or the last. Where a few rows are out of order, each caller gets the side that leaves nothing
out: `first_id_at` for what is made since then, `end_id_at` for what is older.

**Not promised.** The same for rows with wrong times that are many and lie where the search looks.
"""

from __future__ import annotations

from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import LedgerStatements, statements_for

SLACK_US = 60_000_000  # if less, a search may miss rows that are out of order; if more, it reads more rows
_FEW = 1_000  # ids between which the rest is read at once
_FIRST_STEP = 256  # ids beside the guess, then eight times as many, until the place is passed
_FIRST = "SELECT r.id, r.{at} FROM {{{table}}} r ORDER BY r.id LIMIT 1"
_LAST = "SELECT r.id, r.{at} FROM {{{table}}} r ORDER BY r.id DESC LIMIT 1"
_FROM = "SELECT r.id, r.{at} FROM {{{table}}} r WHERE r.id >= %s AND r.id < %s ORDER BY r.id LIMIT 5"
_BEFORE = "SELECT r.id, r.{at} FROM {{{table}}} r WHERE r.id > %s AND r.id < %s ORDER BY r.id DESC LIMIT 5"
_ASKED = 5  # rows, of which the most decide
_BETWEEN = "SELECT r.id, r.{at} FROM {{{table}}} r WHERE r.id > %s AND r.id < %s ORDER BY r.id"


def first_id_at(
    database: Database, cursor: Cursor, at_us: int, *, table: str = "run", column: str = "created_at"
) -> int:
    """Return the id of about the first row that was made at `at_us` or later; the one after the last if none was."""
    search = _Search(statements_for(database), cursor, at_us, table, column)
    return next((id_ for id_, at in search.rows_around() if at >= at_us), search.high)


def end_id_at(database: Database, cursor: Cursor, at_us: int, *, table: str = "run", column: str = "created_at") -> int:
    """Return the id after about the last row that was made before `at_us`; that of the first row if none was."""
    search = _Search(statements_for(database), cursor, at_us, table, column)
    return next((id_ for id_, at in reversed(search.rows_around()) if at < at_us), search.low) + 1


class _Search:
    """Guesses a place by the share of time, steps away from it until it is passed, and halves what is left.

    What is made up to `low` is too old, and what comes from `high` on is not, as far as the rows are in order.
    """

    def __init__(self, statements: LedgerStatements, cursor: Cursor, at_us: int, table: str, column: str) -> None:
        self._statements = statements
        self._cursor = cursor
        self._at_us = at_us
        self._names = {"table": table, "at": column}
        self.low, self.high = -1, 0
        self._are_few = False  # rows between them, however many ids

    def rows_around(self) -> list[tuple[int, int]]:
        """Return the few rows between `low` and `high`, among which the place is."""
        ends = [row for each in (_FIRST, _LAST) for row in self._rows(each)]
        if not ends:
            return []
        (first, first_at), (last, last_at) = ends
        self.low, self.high = first - 1, last + 1
        if first_at < self._at_us <= last_at:  # else the place is before or after all rows, or one of the two is wrong
            share = (self._at_us - first_at) / (last_at - first_at)
            self._narrow_from(first + int((last - first) * share))
        while self._is_wide:
            self._probe((self.low + self.high) // 2)
        return self._rows(_BETWEEN, self.low, self.high)

    def _narrow_from(self, guess: int) -> None:
        step = _FIRST_STEP
        while self._is_wide and step * 4 <= self.high - self.low:
            guess = self.low + step if self._probe(guess) else self.high - step
            step *= 8

    @property
    def _is_wide(self) -> bool:
        return self.high - self.low > _FEW and not self._are_few

    def _probe(self, guess: int) -> bool:
        """Move one end to about the guess, as most of a few rows from there on say; return whether it was `low`."""
        guess = min(max(guess, self.low + 1), self.high - 1)
        there = self._rows(_FROM, guess, self.high)
        if not there:
            self.high = guess
            return False
        if len(there) < _ASKED:
            there = self._rows(_BEFORE, self.low, self.high)[::-1]
        if len(there) < _ASKED:
            self._are_few = True
            return False
        first, last, older = there[0][0], there[-1][0], sum(at < self._at_us for _, at in there)
        if 2 * older > _ASKED:
            self.low = first
            return True
        self.high = last if older else min(first, guess)
        return False

    def _rows(self, sql: str, *values: int) -> list[tuple[int, int]]:
        found = self._statements.rows(self._cursor, sql.format(**self._names), *values)
        return [(int(row[0]), int(row[1])) for row in found]
