"""What a node counts of its jobs, in memory: `figure_writer` writes it, and the loops that know how runs end call this.

An attempt counts when the ledger has accepted its ending, in the hour of the ledger's clock in which it did. Losses
count on the node that gives up the runs of a dead one, and due times that did not run on the node that recorded it.

**Promises.** Counting makes no call to the ledger. An hour never goes back: if the ledger's clock does, the newest hour
that was counted goes on, and so it does while this node does not believe that clock. So a row that was written is never
replaced by one that has less. May be called by any thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from fencepost.core.figures import TIMED, Figures, bucket_of, hour_of, word_of
from fencepost.core.runs import Ending

if TYPE_CHECKING:
    from fencepost.core.runtime import Runtime
    from fencepost.engine.ledger_clock import LedgerClock
    from fencepost.ledger.finishing import Finished
    from fencepost.ledger.reaping import Reaped

_DEAD = "dead"
_COUNTED: Callable[[Ending], tuple[str, str, str | None, int]] = itemgetter(
    *(Ending._fields.index(name) for name in ("job", "state", "outcome", "took_us"))
)
Key = tuple[str, int]
"""A job, and when an hour began."""


class FigureCounts:
    """The figures of a node. Those of hours that are over stay here until they are written."""

    def __init__(self, runtime: Runtime, clock: LedgerClock) -> None:
        self._lock = runtime.lock()
        self._clock = clock
        self._hour = 0
        self._ended: Counter[tuple[str, str, str | None, int]] = Counter()  # of this hour, by what `_sum_up` reads
        self._unrun: list[tuple[str, str]] = []  # of this hour
        self._now: dict[str, Figures] = {}  # of this hour, without these
        self._changed: dict[Key, Figures] = {}  # what is not written as it is now
        self._taken: dict[Key, Figures] = {}
        self.on_first_change: Callable[[], None] = lambda: None

    def ended(self, batch: Sequence[Ending], finished: Finished) -> None:
        """Count the attempts that the ledger has accepted. Thousands end in a second, so little is done for each."""
        accepted = [each for each in batch if each.run_id not in finished.refused] if finished.refused else batch
        with self._lock:
            was_empty = self._begin(finished.now_us)
            self._ended.update(map(_COUNTED, accepted))
        if was_empty:
            self.on_first_change()

    def reaped(self, runs: Sequence[Reaped]) -> None:
        """Count attempts that were lost with their node."""
        self.unrun([(run.job, "lost") for run in runs] + [(run.job, _DEAD) for run in runs if run.state == _DEAD])

    def misfired(self, job: str, count: int) -> None:
        """Count ticks that were recorded as misfired."""
        self.unrun([(job, "misfired")] * count)

    def unrun(self, runs: Sequence[tuple[str, str]]) -> None:
        """Count runs that ended without an attempt: the job and the state of each."""
        if not runs:
            return
        with self._lock:
            was_empty = self._begin(self._clock.there_us()) if self._clock.is_known else not self.has_changed
            self._unrun.extend(runs)
        if was_empty:
            self.on_first_change()

    def _begin(self, now_us: int) -> bool:
        """Go on to the hour of this time; return whether nothing waits to be written. Call it, and count, locked."""
        hour = hour_of(now_us)
        if hour > self._hour and (self._clock.is_believed or not self._hour):
            if self._hour:
                self._sum_up()
            self._hour, self._now = hour, {}
        return not self.has_changed

    def _sum_up(self) -> None:
        """Add the endings that were counted to the figures of their jobs, in the present hour."""
        ended, self._ended = self._ended, Counter()
        unrun, self._unrun = self._unrun, []
        for (job, state, outcome, took_us), count in ended.items():
            if outcome is None:
                continue  # handed back: it never began
            word, figures = word_of(state, outcome), self._figures_of(job)
            figures.outcomes[word] += count
            if word in TIMED:
                figures.run_times[bucket_of(took_us)] += count
            if state == _DEAD:
                figures.outcomes[_DEAD] += count
        for job, word in unrun:
            self._figures_of(job).outcomes[word] += 1

    def _figures_of(self, job: str) -> Figures:
        """Return the figures of a job to count in."""
        found = self._now.get(job)
        if found is None:
            found = self._now[job] = Figures.none()
        self._changed[job, self._hour] = found
        return found

    # -- for the writer ----------------------------------------------------------------------------------------------

    @property
    def has_changed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._changed or self._ended or self._unrun)

    def take(self) -> dict[Key, tuple[str, str]]:
        """Return what has changed, as it is stored. What is not written has to be given back."""
        with self._lock:
            if not self._hour:
                if not self._clock.is_known:  # a node gave up runs of another before it knew what time it is
                    return {}
                self._hour = hour_of(self._clock.there_us())
            self._sum_up()
            self._taken, self._changed = self._changed, {}
            return {key: figures.stored() for key, figures in self._taken.items()}

    def give_back(self, keys: Iterable[Key]) -> None:
        """Note that these were not written: the next `take` returns them as they are then."""
        with self._lock:
            self._changed = {key: self._taken[key] for key in keys} | self._changed
