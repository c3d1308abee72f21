"""How long runs take, so that a runner knows how far ahead of its workers it may take claims.

Short runs are taken many at a time, or crossing to another process would cost more than they do. A run whose job took
long lately is taken only for a worker that is free: nobody else could have it meanwhile. A job that has not been seen
yet is taken to be slower than the others here, a few times; while there are no others, to be long. (Whatever waits
behind one that proves to be long after all is soon recalled.)
"""

from __future__ import annotations

_WEIGHT = 0.1
_OVERHEAD_S = 25e-6  # what the shortest run costs all the same
_QUICK_S = 200e-6
UNKNOWN_S = 3600.0
_ENOUGH = 50  # runs, to judge a job that was not seen yet by the others
_SLOWER = 5


class Pace:
    """Moving averages of how long runs took, per job and over all."""

    __slots__ = ("_of_all_s", "_of_job_s", "_seen")

    def __init__(self) -> None:
        """Know nothing yet."""
        self._of_job_s: dict[str, float] = {}
        self._of_all_s: float | None = None
        self._seen = 0

    def note(self, job: str, took_us: int) -> None:
        """Take one more run into account."""
        took_s = took_us * 1e-6 + _OVERHEAD_S
        before = self._of_job_s.get(job)
        self._of_job_s[job] = took_s if before is None else before + _WEIGHT * (took_s - before)
        self._seen += 1
        of_all = self._of_all_s
        self._of_all_s = took_s if of_all is None else of_all + _WEIGHT * (took_s - of_all)

    @property
    def is_quick(self) -> bool:
        """Whether runs are over before another worker would have woken up for them."""
        return self._of_all_s is not None and self._of_all_s < _QUICK_S

    def expected_s(self, job: str) -> float:
        """How long a run of this job will probably take."""
        known_s = self._of_job_s.get(job)
        if known_s is not None:
            return known_s
        return UNKNOWN_S if self._of_all_s is None or self._seen < _ENOUGH else self._of_all_s * _SLOWER

    def runs_within(self, duration_s: float, *, most: int) -> int:
        """How many runs a worker will probably make in this time."""
        return 0 if self._of_all_s is None else min(int(duration_s / self._of_all_s), most)
