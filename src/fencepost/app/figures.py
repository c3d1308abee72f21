"""Figures of jobs for those who ask: what all nodes have counted, merged, as records.

The rows of all jobs that are asked for are one statement. Nodes write what they count every ten seconds, so the newest
figures may be that old; `fencepost.ledger.figures` says what is kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from fencepost.app.records.figures import FiguresRecord, HourRecord, OutcomesRecord, RunTimesRecord
from fencepost.core.figures import HOUR_US, Figures, hour_of, total
from fencepost.core.tick import instant
from fencepost.ledger.figures import figures_since
from fencepost.ledger.nodes import living_nodes
from fencepost.schema.revisions import known_by

if TYPE_CHECKING:
    from fencepost.ledger.ledger import Ledger
    from fencepost.ledger.nodes import NodeRow

USUAL_US = 24 * HOUR_US
_COUNTS_FROM = 5  # nodes that know this step of the ledger's tables count


def figures_of(ledger: Ledger, jobs: Collection[str], *, since_us: int | None) -> list[FiguresRecord]:
    """Return the figures of these jobs, in their order; since a day ago if `since_us` is None."""
    now_us = ledger.now_us()
    first_us = hour_of(now_us - USUAL_US if since_us is None else since_us)
    rows, is_cut = figures_since(ledger, jobs, first_us)
    if is_cut:  # the oldest hour that was read may lack rows
        first_us = rows[-1].hour + HOUR_US
    by_job: dict[str, dict[int, Figures]] = defaultdict(lambda: defaultdict(Figures.none))
    for row in rows:
        if row.hour >= first_us:
            by_job[row.job][row.hour].add(row.figures())
    silent = _not_counting(living_nodes(ledger))
    until_us = max(now_us, first_us)
    return [_record(job, by_job[job], first_us, until_us, silent[job]) for job in jobs]


def _record(job: str, hours: dict[int, Figures], since_us: int, until_us: int, not_counting: int) -> FiguresRecord:
    whole = total(hours.values())
    return FiguresRecord(
        job=job,
        since_at=instant(since_us),
        until_at=instant(until_us),
        outcomes=OutcomesRecord.of(whole),
        run_times=RunTimesRecord.of(whole),
        not_counting=not_counting,
        hours=tuple(HourRecord.of(hour, hours[hour]) for hour in sorted(hours)),
    )


def _not_counting(nodes: Iterable[NodeRow]) -> Counter[str]:
    """Return how many of these nodes have each job and are of a release that does not count."""
    return Counter(job for node in nodes if known_by(node.version) < _COUNTS_FROM for job in node.jobs)
