"""The progress of a bulk job, written to the ledger about once a second, between chunks.

The progress is a line that people and programs can read::

    read=412000 written=411990 filtered=0 skipped=10 expected=1000000 partitions=3/8 rate=52300

**Not promised.** That it is exact. The exact counts are in the checkpoints, which commit with the chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencepost.bulk.checkpoint import Counts
from fencepost.core.verdicts import Cancel
from fencepost.engine.run import attempt_of
from fencepost.errors import LedgerUnavailable, NoSuchRun
from fencepost.ledger.history import run as run_row

if TYPE_CHECKING:
    from fencepost.bulk.plan import Plans, StepPlan
    from fencepost.engine.run import Run

EVERY_S = 1.0  # often enough to watch, and little load for the ledger
_LOOK_AT_PARENT_EVERY_S = 2.0  # so a part ends within seconds after its parent
_LIVE = ("queued", "waiting", "running")


class Watching:
    """Reports the progress of a step for a run that works on one partition of it, or on all."""

    def __init__(self, run: Run, plan: StepPlan, plans: Plans, *, part: int | None = None) -> None:
        self._run = run
        self._plan = plan
        self._plans = plans
        self._part = part  # None: all partitions
        self._monotonic = attempt_of(run).context.runtime.monotonic
        self._reported_at = self._looked_at = self._begun_at = self._monotonic()
        self._first = self._kept()[0].read

    def of(self, number: int) -> Callable[[Counts], None]:
        """Return the function to call after each chunk of a partition."""
        is_all = self._part is not None or len(self._plan.slices) == 1

        def watch(counts: Counts) -> None:
            now = self._monotonic()
            if now - self._reported_at >= EVERY_S:
                self._reported_at = now
                self._report(counts if is_all else None)
                self._look_at_parent(now)

        return watch

    def look(self) -> None:
        """Report the progress of all partitions, while this run waits."""
        now = self._monotonic()
        if now - self._reported_at >= EVERY_S:
            self._reported_at = now
            self._report(None)

    def end(self) -> None:
        """Report the end: everything is done."""
        self._report(None, is_end=True)

    def _report(self, counts: Counts | None, *, is_end: bool = False) -> None:
        """Report these counts, or those in the checkpoints."""
        counts, partitions = (counts, None) if counts is not None else self._kept()
        expected = self._expected()
        rate = (counts.read - self._first) / max(self._monotonic() - self._begun_at, 1e-6)
        note = note_of(counts, expected=expected, partitions=partitions, rate=rate)
        attempt_of(self._run).show(1.0 if is_end else _fraction(counts, expected, partitions), note)

    def _kept(self) -> tuple[Counts, tuple[int, int] | None]:
        """Return the counts in the checkpoints, and how many of how many partitions are done."""
        progress = self._plans.progress(self._plan)
        if self._part is not None:
            kept = progress.kept[self._part]
            return (Counts() if kept is None else kept.counts), None
        return progress.counts, ((sum(progress.done), len(progress.kept)) if len(progress.kept) > 1 else None)

    def _expected(self) -> int | None:
        slices = self._plan.slices if self._part is None else [self._plan.slices[self._part]]
        several = [each.get("expected") for each in slices]
        return None if None in several else sum(each for each in several if each is not None)

    def _look_at_parent(self, now: float) -> None:
        """Raise `Cancel` if the parent run has ended."""
        if self._part is None or now - self._looked_at < _LOOK_AT_PARENT_EVERY_S:
            return
        self._looked_at = now
        refuse_without_parent(self._run, self._plan.instance.parent)


def refuse_without_parent(run: Run, parent: int) -> None:
    """Raise `Cancel` in a part whose parent has ended in any state: its parts end with it."""
    try:
        state = run_row(attempt_of(run).context.ledger(), parent).state
    except LedgerUnavailable:
        return  # the next report checks again
    except NoSuchRun:
        state = "no longer recorded"
    if state not in _LIVE:
        raise Cancel(f"its parent, run {parent}, is {state}")


def note_of(counts: Counts, *, expected: int | None, partitions: tuple[int, int] | None, rate: float) -> str:
    """Return the line."""
    words: dict[str, Any] = {name: value for name, value in counts._asdict().items() if name != "chunks"}
    if expected is not None:
        words["expected"] = max(expected, counts.read)
    if partitions is not None:
        words["partitions"] = f"{partitions[0]}/{partitions[1]}"
    words["rate"] = round(rate)
    return " ".join(f"{name}={value}" for name, value in words.items())


def read_note(note: str | None) -> dict[str, str]:
    """Parse the line; empty if it is not a line of ours."""
    pairs = [word.partition("=") for word in (note or "").split()]
    return {name: value for name, sign, value in pairs if sign} if pairs and all(p[1] for p in pairs) else {}


def _fraction(counts: Counts, expected: int | None, partitions: tuple[int, int] | None) -> float:
    if expected:
        return min(counts.read / max(expected, counts.read), 1.0)
    return 0.0 if partitions is None else partitions[0] / partitions[1]
