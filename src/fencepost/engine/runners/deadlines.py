"""Which of the runs that execute have outlived their timeout, and when to look again.

Nothing is kept per run. Somebody looks at the few that execute, at the latest `looks_every_s` after the last time;
since no timeout is shorter than that, each run is seen once before its deadline, and then the next look is on time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencepost.core.runs import Claim

# Waits count on a clock that stops while the machine sleeps; so they are cut short and the real one is read.
_LONGEST_NAP_S = 1.0

Executing = tuple[Claim, float]
"""A claim, and the monotonic reading at which it began to execute."""


class JobTimeouts:
    """The timeouts of jobs, in seconds; a job without one may run as long as it likes."""

    def __init__(self, timeouts: Mapping[str, float | None]) -> None:
        self._timeouts = {job: timeout_s for job, timeout_s in timeouts.items() if timeout_s is not None}
        self.looks_every_s = min([_LONGEST_NAP_S, *self._timeouts.values()])

    def of(self, job: str) -> float | None:
        """Return a job's timeout."""
        return self._timeouts.get(job)

    def sort(self, executing: Iterable[Executing], now: float) -> tuple[list[Claim], float]:
        """Return what is overdue, and the reading by which to look again for the rest."""
        overdue: list[Claim] = []
        look_at = now + self.looks_every_s
        for claim, began_at in executing:
            ends_at = began_at + self._timeouts.get(claim.job, float("inf"))
            if ends_at <= now:
                overdue.append(claim)
            else:
                look_at = min(look_at, ends_at)
        return overdue, look_at
