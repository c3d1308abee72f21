"""How long runs take. Runners use this to decide how many claims to take beyond their free slots.

The typical duration moves up or down by a small step with each run, and so settles at the median. A mean would be
dominated by the few runs that waited for the interpreter lock. More threads would be woken because of it, and then more
runs would have to wait. The last run also counts by itself: while it was a long one, no claims are taken ahead, because
other nodes could start them.

Pure: durations are arguments. Not synchronized: a lost update only loses one measurement.
"""

from __future__ import annotations

UNKNOWN_S = 3600.0  # long enough that nothing is queued behind a job that was never seen
_STEP = 1.25  # follows a change within a dozen runs, and one outlier hardly at all
_SHORTEST_S = 1e-6  # clocks do not resolve less
_ENOUGH = 50  # runs that must have been seen before a new job is estimated from the other jobs
_SLOWER = 5  # if less, more claims of a new job wait behind each other; if more, a worker gets fewer at once


class RunTimes:
    """How long recent runs took, per job and overall."""

    __slots__ = ("_last_s", "_of_job", "_seen", "typical_s")

    def __init__(self) -> None:
        self.typical_s: float | None = None
        self._last_s = 0.0
        self._of_job: dict[str, tuple[float, float]] = {}  # the typical and the last duration
        self._seen = 0

    def note(self, took_s: float) -> None:
        """Record the duration of a run, or the average of several."""
        self._last_s = took_s = max(took_s, _SHORTEST_S)
        self.typical_s = _nearer(self.typical_s, took_s)

    def note_job(self, job: str, took_s: float) -> None:
        """Record the duration of a run of this job."""
        self.note(took_s)
        known = self._of_job.get(job)
        self._of_job[job] = (took_s if known is None else _nearer(known[0], took_s), took_s)
        self._seen += 1

    def within(self, duration_s: float) -> int:
        """Return how many runs probably fit into this time: 0 before the first run and after a run that took longer."""
        if self.typical_s is None or self._last_s > duration_s:
            return 0
        return int(duration_s / self.typical_s)

    def are_shorter_than(self, duration_s: float) -> bool:
        """Whether runs typically take less than this; False before the first run."""
        return self.typical_s is not None and self.typical_s < duration_s

    def expected_s(self, job: str) -> float:
        """Return how long a run of this job will probably take, or how long the last one took if that is longer.

        A job that has not run yet is assumed to take `_SLOWER` times as long as the others, or `UNKNOWN_S` while fewer
        than `_ENOUGH` runs have been seen.
        """
        known = self._of_job.get(job)
        if known is not None:
            return max(known)
        return UNKNOWN_S if self.typical_s is None or self._seen < _ENOUGH else self.typical_s * _SLOWER


def _nearer(typical_s: float | None, took_s: float) -> float:
    """Return `typical_s` moved one step towards `took_s`."""
    if typical_s is None:
        return took_s
    return min(typical_s * _STEP, took_s) if took_s > typical_s else max(typical_s / _STEP, took_s)
