"""How long runs take: what every runner goes by when it takes claims ahead of its free slots.

What runs take is followed by small steps up and down, which settle at the median. A mean would be ruled by the few runs
that had to wait for the interpreter's lock, and the more threads were woken because of it, the more would have to wait.
A run that took long counts at once all the same, until the next one: others could have what waits behind it.

Pure: durations are arguments. Not synchronized: a lost update is one measurement less.
"""

from __future__ import annotations

UNKNOWN_S = 3600.0
_STEP = 1.25
_SHORTEST_S = 1e-6
_ENOUGH = 50  # runs, to judge a job that was not seen yet by the others
_SLOWER = 5


class RunTimes:
    """How long runs took lately, per job and over all."""

    __slots__ = ("_last_s", "_of_job", "_seen", "typical_s")

    def __init__(self) -> None:
        self.typical_s: float | None = None
        self._last_s = 0.0
        self._of_job: dict[str, tuple[float, float]] = {}  # typical, and the last
        self._seen = 0

    def note(self, took_s: float) -> None:
        """Note how long a run took, or several on an average."""
        self._last_s = took_s = max(took_s, _SHORTEST_S)
        self.typical_s = _nearer(self.typical_s, took_s)

    def note_job(self, job: str, took_s: float) -> None:
        """Note how long a run of this job took."""
        self.note(took_s)
        known = self._of_job.get(job)
        self._of_job[job] = (took_s if known is None else _nearer(known[0], took_s), took_s)
        self._seen += 1

    def within(self, duration_s: float) -> int:
        """How many runs probably fit into this time; none before one was noted, nor after one that took longer."""
        if self.typical_s is None or self._last_s > duration_s:
            return 0
        return int(duration_s / self.typical_s)

    def are_shorter_than(self, duration_s: float) -> bool:
        """Whether runs typically take less than this; False before one was noted."""
        return self.typical_s is not None and self.typical_s < duration_s

    def expected_s(self, job: str) -> float:
        """How long a run of this job will probably take, or took last if that was longer.

        A job that has not been seen yet is taken to be slower than the others here, a few times; while there are few
        others, to be long.
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
