"""The root of a run: the first of a run and its repetitions.

Each repetition stores it, because the runs in between may be pruned. The work of a bulk job's run, and its checkpoints,
are named after its root. Text of the column `root`::

    <run>@<µs>          the run that was repeated first, and when it was requested
    again:<run>@<µs>    a run that deliberately repeats complete work: its repetitions continue *its* work

A run that is not a repetition has no root. A repetition with other parameters does other work: it is its own root
(`fencepost.ledger.changed_runs`). Repetitions that older versions created have none either: there the chain of
`retry_of` is followed as far as its runs are kept.
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

AGAIN = "again:"  # also the prefix of such a run's origin key
_TEXT = re.compile(rf"({AGAIN})?(\d+)@(\d*)")
_MOST_REPETITIONS = 1000  # a longer chain is a loop that somebody wrote by hand


class Root(NamedTuple):
    """The first of a run and its repetitions, whether it starts over, and when it was requested, if known."""

    run_id: int
    is_again: bool
    asked_at_us: int | None

    def to_text(self) -> str:
        return f"{AGAIN if self.is_again else ''}{self.run_id}@{self.asked_at_us or ''}"

    @staticmethod
    def from_text(text: str) -> Root | None:
        """Parse it; return None for the format of a newer version."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        again, run_id, at_us = found.groups()
        return Root(int(run_id), again is not None, int(at_us) if at_us else None)


def root_of(database: Database, cursor: Cursor, row: RunRow) -> Root:
    """Return the root of a run; the run itself if it is not a repetition."""
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
