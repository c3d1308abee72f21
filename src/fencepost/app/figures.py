"""Figures of jobs for those who ask: what all nodes have counted, merged, as records.

The rows of all jobs that are asked for are one statement. Nodes write what they count every ten seconds, so the newest
figures may be that old; `fencepost.ledger.figures` says what is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.app.records.figures import FiguresRecord, HourRecord, OutcomesRecord, RunTimesRecord
from fencepost.core.figures import HOUR_US, hour_of, read_outcomes, read_run_times
from fencepost.core.tick import instant
from fencepost.ledger.figures import figures_since
from fencepost.ledger.nodes import living_nodes
from fencepost.schema.revisions import known_by

if TYPE_CHECKING:
    from fencepost.ledger.figures import FigureRow
    from fencepost.ledger.ledger import Ledger
    from fencepost.ledger.nodes import NodeRow

USUAL_US = 24 * HOUR_US  # a day; all that is kept are five weeks (`ledger.figures.KEPT_US`)
_COUNTS_FROM = 5  # nodes that know this step of the ledger's tables count


def figures_of(
    ledger: Ledger, jobs: Collection[str], *, since_us: int | None, is_one: bool = True
) -> list[FiguresRecord]:
    """Return the figures of these jobs, in their order; since a day ago if `since_us` is None.

    With `is_one`, also the run times of each hour.
    """
    now_us = ledger.now_us()
    first_us = hour_of(now_us - USUAL_US if since_us is None else since_us)
    rows, is_cut = figures_since(ledger, jobs, first_us, until_us=now_us)
    if is_cut:  # the oldest hour that was read may lack rows
        first_us = rows[-1].hour + HOUR_US
    sums = {job: _JobSum(is_one) for job in jobs}
    for row in rows:
        if row.hour >= first_us and row.job in sums:
            sums[row.job].add(row)
    silent = _not_counting(living_nodes(ledger))
    stretch = instant(first_us), instant(max(now_us, first_us))
    return [sums[job].record(job, stretch, silent[job]) for job in jobs]


class _JobSum:
    """The sum of the rows of one job. A page has thousands of rows, so they are added as plain dictionaries."""

    def __init__(self, has_times: bool) -> None:
        self._has_times = has_times
        self._outcomes: dict[str, int] = {}
        self._times: dict[int, int] = {}
        self._hours: dict[int, tuple[dict[str, int], dict[int, int]]] = {}

    def add(self, row: FigureRow) -> None:
        outcomes, times = read_outcomes(row.outcomes), read_run_times(row.histogram)
        if (hour := self._hours.get(row.hour)) is None:
            hour = self._hours[row.hour] = ({}, {})
        _add(self._outcomes, outcomes)
        _add(hour[0], outcomes)
        _add(self._times, times)
        if self._has_times:
            _add(hour[1], times)

    def record(self, job: str, stretch: tuple[datetime, datetime], not_counting: int) -> FiguresRecord:
        return FiguresRecord(
            job=job,
            since_at=stretch[0],
            until_at=stretch[1],
            outcomes=OutcomesRecord.of(self._outcomes),
            run_times=RunTimesRecord.of(self._times),
            not_counting=not_counting,
            hours=tuple(self._hour(hour) for hour in sorted(self._hours)),
        )

    def _hour(self, hour: int) -> HourRecord:
        outcomes, times = self._hours[hour]
        found = RunTimesRecord.of(times) if self._has_times else None
        return HourRecord(instant(hour), OutcomesRecord.of(outcomes), found)


def _add(into: dict[Any, int], counts: Mapping[Any, int]) -> None:
    for name, count in counts.items():
        into[name] = into.get(name, 0) + count


def _not_counting(nodes: Iterable[NodeRow]) -> Counter[str]:
    """Return how many of these nodes have each job and are of a release that does not count."""
    return Counter(job for node in nodes if known_by(node.version) < _COUNTS_FROM for job in node.jobs)
