"""How far a bulk job is, for people who watch: told to the ledger about once a second, between chunks.

What is told is a line that people and programs can read::

    read=412000 written=411990 filtered=0 skipped=10 expected=1000000 partitions=3/8 rate=52300

**Not promised.** That it is exact: the truth are the counts beside the checkpoints, which commit with the chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencepost.bulk.checkpoint import Counts
from fencepost.core.verdicts import Cancel
from fencepost.errors import LedgerUnavailable, NoSuchRun
from fencepost.ledger.history import run as run_row

if TYPE_CHECKING:
    from fencepost.bulk.plan import Plan, Plans
    from fencepost.engine.run import Run

EVERY_S = 1.0
_LOOK_AT_PARENT_EVERY_S = 5.0


class Watching:
    """Tells how far a step is, on behalf of a run that does one partition of it, or all."""

    def __init__(self, run: Run, plan: Plan, plans: Plans) -> None:
        self._run = run
        self._plan = plan
        self._plans = plans
        self._monotonic = run.context.runtime.monotonic
        self._told_at = self._begun_at = self._monotonic()
        self._looked_at = self._begun_at
        self._is_parent = plan.instance.parent == run.id
        self._first: Counts | None = None

    def of(self, number: int) -> Callable[[Counts], None]:
        """Return what is to be called after each chunk of a partition."""

        def watch(counts: Counts) -> None:
            now = self._monotonic()
            if now - self._told_at >= EVERY_S:
                self._told_at = now
                self._tell(number, counts)
                self._look_at_parent(now)

        return watch

    def look(self) -> None:
        """Tell of the whole, while nothing is done here."""
        now = self._monotonic()
        if now - self._told_at >= EVERY_S:
            self._told_at = now
            self._tell(None, Counts())

    def end(self) -> None:
        """Tell once more, at the end."""
        self._tell(None, Counts())

    def _tell(self, number: int | None, counts: Counts) -> None:
        plan, total = self._plan, len(self._plan.slices)
        done = None
        if (self._is_parent and total > 1) or number is None:
            counts = self._plans.counts(plan)
            done = sum(self._plans.done(plan)) if total > 1 else None
        if self._first is None:
            self._first = counts
        took_s = max(self._monotonic() - self._begun_at, 1e-6)
        rate = (counts.read - self._first.read) / took_s
        expected = self._expected(number)
        note = note_of(counts, expected=expected, partitions=None if done is None else (done, total), rate=rate)
        self._run.show(_fraction(counts, expected, done, total), note)

    def _expected(self, number: int | None) -> int | None:
        slices = self._plan.slices if number is None or self._is_parent else [self._plan.slices[number]]
        several = [each.get("expected") for each in slices]
        return None if None in several else sum(each for each in several if each is not None)

    def _look_at_parent(self, now: float) -> None:
        """End when the run that this one is part of was called off."""
        if self._is_parent or now - self._looked_at < _LOOK_AT_PARENT_EVERY_S:
            return
        self._looked_at = now
        try:
            state = run_row(self._run.context.ledger(), self._plan.instance.parent).state
        except (LedgerUnavailable, NoSuchRun):
            return
        if state == "cancelled":
            raise Cancel(f"run {self._plan.instance.parent}, which it is part of, was cancelled")


def note_of(counts: Counts, *, expected: int | None, partitions: tuple[int, int] | None, rate: float) -> str:
    """Write the line."""
    words: dict[str, Any] = {name: value for name, value in counts._asdict().items() if name != "chunks"}
    if expected is not None:
        words["expected"] = max(expected, counts.read)
    if partitions is not None:
        words["partitions"] = f"{partitions[0]}/{partitions[1]}"
    words["rate"] = round(rate)
    return " ".join(f"{name}={value}" for name, value in words.items())


def read_note(note: str | None) -> dict[str, str]:
    """Read the line; empty if it is none of ours."""
    pairs = [word.partition("=") for word in (note or "").split()]
    return {name: value for name, sign, value in pairs if sign} if pairs and all(p[1] for p in pairs) else {}


def _fraction(counts: Counts, expected: int | None, done: int | None, total: int) -> float:
    if expected:
        return min(counts.read / max(expected, counts.read), 1.0)
    return 0.0 if done is None else done / total
