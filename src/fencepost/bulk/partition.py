"""The work of one partition: page by page, from its checkpoint to the end of its slice.

**Promises.** However often it is begun, and on any node: each item of the slice lands once, and it continues at most
one chunk before the place where it was lost.

**Items that crash a worker.** If a partition was lost twice at the same place, on any node, an item is suspected of
ending its process. From there on, the partition processes a few items at a time, and if it is lost among these, one by
one. If a single item is lost with its worker `crash_limit` times, it becomes a dead letter like any failed item.

**Unavailable databases.** If the source or the target does not reply, the partition waits and continues from the
checkpoint. The attempt fails only if this happens several times and nothing lands in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.bulk.checkpoint import Checkpoint, CheckpointMark, Counts, StoredCheckpoint
from fencepost.bulk.collecting import sparing_what_is_there
from fencepost.bulk.failures import MENDED_BY_TIME, verdict_of
from fencepost.bulk.landing import OMITTED, Lander, Processed
from fencepost.bulk.patience import asked, pause_before, steadily
from fencepost.bulk.places import target_of_step
from fencepost.bulk.processing import Processor
from fencepost.bulk.read_ahead import ReadAhead
from fencepost.bulk.reader import Page, Slice, Surroundings
from fencepost.core.sizing import MeasuredChunk, bytes_of
from fencepost.core.texts import error_text
from fencepost.engine.run import attempt_of
from fencepost.errors import FencepostError, NoSuchRun
from fencepost.ledger.history import run as run_row

if TYPE_CHECKING:
    from fencepost.bulk.definition import Step
    from fencepost.bulk.instance import Instance
    from fencepost.engine.run import Run

_TRIES = 5  # without a chunk that landed in between
COPIES_BESIDE_READ_AHEAD = 3  # the current page, its results, and the page that is being received


class WorkerLost(FencepostError):
    """The error in the dead letter of an item whose process ended, so that it could not report one itself."""


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """Which partition to work on, and its name."""

    step: Step
    number: int
    part: Slice
    name: str  # of its checkpoint
    instance: Instance
    workers: int = 1


Watch = Callable[[Counts], None]
"""Called after each chunk with the counts so far."""


class Partition:
    """Works on one partition for a run."""

    def __init__(self, run: Run, assignment: PartitionAssignment, surroundings: Surroundings, *, watch: Watch) -> None:
        self._run = run
        self._it = assignment
        self._surroundings = surroundings
        self._watch = watch
        self._runtime = attempt_of(run).context.runtime
        reader = assignment.step.read
        if reader is None:
            raise ValueError(f"step {assignment.step.name!r} reads nothing")
        self._reader = reader
        self._target = target_of_step(assignment.step, run)
        self._checkpoint = Checkpoint(assignment.name, reader.shape, attempt_of(run).writer())
        self._by = (run.id, run.crashes)
        self._size = assignment.step.options.sizing.first()
        self._has_landed = False

    def work(self, skipped_elsewhere: Callable[[], int]) -> Counts:
        """Do the rest of the partition, and return the counts of all of it.

        If an earlier holder of the partition has moved its checkpoint in the meantime, continue from there.
        """
        tries = 0
        while True:
            self._has_landed = False
            try:
                return self._work(skipped_elsewhere)
            except Exception as error:
                tries = 1 if self._has_landed else tries + 1
                if verdict_of(error) not in MENDED_BY_TIME or tries >= _TRIES:
                    raise
                self._run.log.warning(
                    "%s continues from its checkpoint: %s", attempt_of(self._run).label, error_text(error)
                )
            pause_before(self._run, tries)

    def _work(self, skipped_elsewhere: Callable[[], int]) -> Counts:
        kept = self._begin()
        if kept.mark.is_done:
            return kept.counts
        lander = Lander(
            self._run,
            step=self._it.step,
            target=self._target,
            checkpoint=self._checkpoint,
            kept=kept,
            instance=self._it.instance,
            skipped_elsewhere=skipped_elsewhere,
        )
        processor = Processor(self._it.step, lander)
        feed = self._reader.open(self._it.part, self._surroundings)
        try:
            with sparing_what_is_there():
                while not self._read_and_land(feed, lander, processor):
                    self._run.log.info(
                        "%s continues with normal chunks: no item crashed its worker", attempt_of(self._run).label
                    )
        finally:
            processor.close()
            feed.close()
        return lander.counts

    def _begin(self) -> StoredCheckpoint:
        """Read or create the checkpoint, and write our run into it, so that no earlier attempt can land a chunk."""
        kept = steadily(self._run, self._read_or_made, self._target)
        losses = self._losses(kept.mark)
        if kept.mark.is_done or (kept.mark.run == self._run.id and not losses):
            return kept
        care = kept.mark.care.after_losses(losses, chunk=self._it.step.options.sizing.chunk)
        taken = kept.mark.taken(by=self._by, care=care)
        steadily(self._run, lambda tx: self._checkpoint.move(tx, kept.mark, taken, kept.counts), self._target)
        return kept._replace(mark=taken)

    def _read_or_made(self, tx: Any) -> StoredCheckpoint:
        kept = self._checkpoint.read(tx)
        if kept is not None:
            return kept
        mark = CheckpointMark(run=self._by[0], crashes=self._by[1])
        self._checkpoint.begin(tx, mark)
        return StoredCheckpoint(mark, Counts(), self._reader.shape, self._run.token)

    def _losses(self, mark: CheckpointMark) -> int:
        """Return how often the last run here was lost since it began here or last landed a chunk."""
        if mark.run is None or mark.run == self._run.id:
            return max(self._by[1] - mark.crashes, 0)
        former = mark.run
        try:
            row = asked(self._run, lambda: run_row(attempt_of(self._run).context.ledger(), former))
        except NoSuchRun:
            return 0
        return max(row.crashes - mark.crashes, 0)

    def _read_and_land(self, feed: Any, lander: Lander, processor: Processor) -> bool:
        """Continue to the end; or, if few items are processed at a time, until that is over: then return False."""
        is_careful = lander.mark.care.few > 0
        depth = 0 if is_careful else self._it.step.options.read_ahead
        pages = ReadAhead(self._runtime, feed, lander.mark.after, lambda: self._limit(lander), depth=depth)
        self._checkpoint.meanwhile = pages.take
        try:
            while True:
                page = pages.next()
                self._run.check()
                if not page.items:
                    lander.finish()
                    return True
                started_at = self._runtime.monotonic()
                lander.land(self._processed(page, lander, processor))
                self._has_landed = True
                self._resize(page, self._runtime.monotonic() - started_at)
                self._watch(lander.counts)
                if page.is_last:
                    return True
                if is_careful and not lander.mark.care.few:
                    return False
        finally:
            pages.close()

    def _limit(self, lander: Lander) -> int:
        return min(self._size, lander.mark.care.few or self._size)

    def _processed(self, page: Page, lander: Lander, processor: Processor) -> Processed:
        care = lander.mark.care
        if care.few != 1 or care.lost < self._it.step.options.crash_limit or len(page.items) != 1:
            return processor.process(page)
        done = Processed(page, [OMITTED], {})
        lost = WorkerLost(f"its worker was lost {care.lost} times while it processed only this item")
        lander.put_aside(done, 0, lost, care.lost)
        return done

    def _resize(self, page: Page, took_s: float) -> None:
        options = self._it.step.options
        if options.sizing.is_fixed:
            return
        size = page.size_bytes / len(page.items) if page.size_bytes else bytes_of(page.items)
        measured = MeasuredChunk(len(page.items), size, took_s)
        copies = options.read_ahead + COPIES_BESIDE_READ_AHEAD
        self._size = options.sizing.following(self._size, measured, copies=copies, workers=self._it.workers)
