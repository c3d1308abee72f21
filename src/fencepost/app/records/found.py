"""What a search for runs found, and how far it came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.app.records.runs import RunRecord


@dataclass(frozen=True, slots=True)
class RunsFound:
    """A page of runs. The next one begins at `next_before`, or after `next_after`; None if there is none.

    `looked_back_to`: the search ended early, after having looked through about `looked_through` runs up to this id.
    That run, or the next one, was made at `looked_back_at`.
    """

    runs: Sequence[RunRecord]
    next_before: int | None = None
    next_after: int | None = None
    looked_through: int = 0
    looked_back_to: int | None = None
    looked_back_at: datetime | None = None
