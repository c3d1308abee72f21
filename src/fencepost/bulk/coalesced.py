"""Finds coalesced runs, and runs for one of their windows, whose effects would land twice if both did their work.

After downtime, one coalesced run covers all late windows together, and its checkpoints are those of the whole period. A
run for one of these windows has checkpoints of its own. So before its first chunk lands, a run looks up in the ledger
which other runs cover its due times. A window that is part of a coalesced run is left to that run. A coalesced run is
refused as a whole if a back-fill has done one of its windows before, and the error says how to do the rest.

**Not promised.** Anything once the other run is no longer recorded (`[retention]`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fencepost.core.states import RunState, is_terminal
from fencepost.ledger import covered, history
from fencepost.ledger.renaming import first_name

if TYPE_CHECKING:
    from fencepost.ledger.database import Database
    from fencepost.ledger.history import RunRow

_DOES_NOTHING = ("skipped", "misfired")


def wider_runs(ledger: Database, run_id: int) -> list[RunRow]:
    """Return the runs whose window includes that of a run; first those that have not ended."""
    row = history.run(ledger, run_id)
    if row.schedule is None or row.due_at is None or row.window_end is None:
        return []
    found = [each for each in covered.stretches(ledger, row.schedule, row.due_at) if _is_wider(ledger, each, row)]
    return sorted(found, key=lambda each: (has_ended(each), each.id))


def narrower_runs(ledger: Database, run_id: int) -> list[RunRow]:
    """Return the runs for a part of a coalesced run's window, in any state, by id."""
    row = history.run(ledger, run_id)
    if row.schedule is None or row.window_end is None or row.ticks < 2:
        return []
    found = covered.due_within(ledger, row.schedule, *window_of(row))
    return [each for each in found if _is_wider(ledger, row, each)]


def is_whole(row: RunRow, parts: Iterable[RunRow]) -> bool:
    """Whether the windows of `parts` together cover that of `row`."""
    reached, end = window_of(row)
    for from_, to in sorted(map(window_of, parts)):
        if from_ > reached:
            return False
        reached = max(reached, to)
    return reached >= end


def has_ended(row: RunRow) -> bool:
    return is_terminal(RunState(row.state))


def _is_wider(ledger: Database, other: RunRow, row: RunRow) -> bool:
    if other.state in _DOES_NOTHING or other.params != row.params or not _is_same_job(ledger, other, row):
        return False
    (start, end), (from_, to) = window_of(other), window_of(row)
    return start <= from_ and to <= end and (start, end) != (from_, to)


def _is_same_job(ledger: Database, other: RunRow, row: RunRow) -> bool:
    return other.job == row.job or first_name(ledger, other.job) == first_name(ledger, row.job)


def window_of(row: RunRow) -> tuple[int, int]:
    """Return the beginning and the end of a run's window."""
    end = row.window_end or 0
    return (end if row.window_start is None else row.window_start), end
