"""The first of a run and its repetitions, noted in each repetition: the runs in between may be pruned.

What a bulk job's run stands for is named by it, and so are its checkpoints. Text of the column `root`::

    <run>@<µs>          the run that was repeated first, and when it was asked for
    again:<run>@<µs>    a run that does again on purpose what is complete: its repetitions go on with *its* work

A run that repeats nothing has none, and neither have repetitions that older versions made: there the chain of
`retry_of` is followed as far as it is on record.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from fencepost.errors import NoSuchRun
from fencepost.ledger.history import run_row

if TYPE_CHECKING:
    from fencepost.ledger.database import Database
    from fencepost.ledger.dialects import Cursor
    from fencepost.ledger.history import RunRow

AGAIN = "again:"  # also the beginning of such a run's origin key
_TEXT = re.compile(rf"({AGAIN})?(\d+)@(\d*)")
_MOST_REPETITIONS = 1000


class Root(NamedTuple):
    """The first of a run and its repetitions, whether it begins anew, and when it was asked for, if that is known."""

    run_id: int
    is_again: bool
    asked_at_us: int | None

    def to_text(self) -> str:
        """Write it."""
        return f"{AGAIN if self.is_again else ''}{self.run_id}@{self.asked_at_us or ''}"

    @staticmethod
    def from_text(text: str) -> Root | None:
        """Read it; None if a newer version has written something else."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        again, run_id, at_us = found.groups()
        return Root(int(run_id), again is not None, int(at_us) if at_us else None)


def root_of(database: Database, cursor: Cursor, row: RunRow) -> Root:
    """Return the run that this one repeats, or repeats a repetition of; itself, if it repeats none."""
    for _ in range(_MOST_REPETITIONS):
        if (row.origin_key or "").startswith(AGAIN):
            return Root(row.id, True, row.created_at)
        noted = None if row.root is None else Root.from_text(row.root)
        if noted is not None:
            return noted
        before = row.retry_of
        if before is None:
            break
        try:
            row = run_row(database, cursor, before)
        except NoSuchRun:  # pruned
            return Root(before, False, None)
    return Root(row.id, False, row.created_at)
