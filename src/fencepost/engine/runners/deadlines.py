"""Which executing runs have exceeded their timeout, and when to check again.

No state is kept per run. The caller checks the executing runs at least once every `check_every_s`. No timeout is
shorter than that, so each run is seen once before its deadline, and the next check is then scheduled for the deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencepost.core.runs import Claim

# Waits use a clock that stops while the machine is suspended, so they are short and the monotonic clock is read again.
_LONGEST_WAIT_S = 1.0

Executing = tuple[Claim, float]
"""A claim, and the monotonic time at which it began to execute."""


class JobTimeouts:
    """The timeouts of jobs, in seconds. A job without one may run indefinitely."""

    def __init__(self, timeouts: Mapping[str, float | None]) -> None:
        self._timeouts = {job: timeout_s for job, timeout_s in timeouts.items() if timeout_s is not None}
        self.check_every_s = min([_LONGEST_WAIT_S, *self._timeouts.values()])

    def of(self, job: str) -> float | None:
        """Return a job's timeout, or None."""
        return self._timeouts.get(job)

    def sort(self, executing: Iterable[Executing], now: float) -> tuple[list[Claim], float]:
        """Return the overdue claims, and the monotonic time by which to check the others again."""
        overdue: list[Claim] = []
        check_at = now + self.check_every_s
        for claim, began_at in executing:
            ends_at = began_at + self._timeouts.get(claim.job, float("inf"))
            if ends_at <= now:
                overdue.append(claim)
            else:
                check_at = min(check_at, ends_at)
        return overdue, check_at
