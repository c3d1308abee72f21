"""The work of one partition: page after page, from its checkpoint to the end of its slice.

**Promises.** Whoever executes it, and however often it is begun: each item of the slice lands once, and it goes on at
most one chunk before where it was lost.

**Items that kill.** A partition that was lost again and again at the same place is suspected of an item that ends its
process. From the second loss on it goes item by item, until it has moved; an item that was alone when its worker was
lost for the `crash_limit`-th time is put aside like any other that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.bulk.checkpoint import Checkpoint, CheckpointMoved, Counts, Kept, Mark
from fencepost.bulk.landing import OMITTED, Lander, Processed
from fencepost.bulk.places import target_of_step
from fencepost.bulk.processing import Processor
from fencepost.bulk.read_ahead import ReadAhead
from fencepost.bulk.reader import Page, Slice, Surroundings
from fencepost.core.sizing import Measured, bytes_of
from fencepost.errors import FencepostError

if TYPE_CHECKING:
    from fencepost.bulk.definition import Step
    from fencepost.engine.run import Run

_MOST_MOVED = 5
COPIES_BESIDE_READ_AHEAD = 3  # the page, what was made of it, and the page on its way


class WorkerLost(FencepostError):
    """Stands in a dead letter for the error that nobody could report: the process ended."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which partition is to be done, and how it is called."""

    step: Step
    number: int
    part: Slice
    name: str  # of its checkpoint
    instance: str
    workers: int = 1


Watch = Callable[[Counts], None]
"""Called after each chunk, with what has landed so far."""


class Partition:
    """One partition in the hands of a run."""

    def __init__(self, run: Run, assignment: Assignment, surroundings: Surroundings, *, watch: Watch) -> None:
        self._run = run
        self._it = assignment
        self._surroundings = surroundings
        self._watch = watch
        self._runtime = run.context.runtime
        reader = assignment.step.read
        if reader is None:
            raise ValueError(f"step {assignment.step.name!r} reads nothing")
        self._reader = reader
        self._target = target_of_step(assignment.step, run)
        self._checkpoint = Checkpoint(assignment.name, reader.shape, run.writer())
        self._by = (run.id, run.crashes)
        self._size = assignment.step.options.sizing.first()

    def work(self, skipped_elsewhere: Callable[[], int]) -> Counts:
        """Do what is left of it, and return the counts of all of it.

        A former holder of the partition may still have moved its checkpoint while we came to it: then we go on there.
        """
        for _ in range(_MOST_MOVED - 1):
            try:
                return self._work(skipped_elsewhere)
            except CheckpointMoved as error:
                self._run.log.warning("%s goes on from there: %s", self._run.label, error)
        return self._work(skipped_elsewhere)

    def _work(self, skipped_elsewhere: Callable[[], int]) -> Counts:
        kept = self._begin()
        if kept.mark.is_done:
            return kept.counts
        losses = kept.mark.losses(by=self._by)
        if losses > 1:
            self._size = 1
        lander = Lander(
            self._run,
            step=self._it.step,
            target=self._target,
            checkpoint=self._checkpoint,
            kept=kept,
            instance=self._it.instance,
            skipped_elsewhere=skipped_elsewhere,
        )
        processor = Processor(self._it.step, lander, self._runtime)
        feed = self._reader.open(self._it.part, self._surroundings)
        try:
            self._read_and_land(feed, lander, processor, losses)
        finally:
            processor.close()
            feed.close()
        return lander.counts

    def _begin(self) -> Kept:
        """Read the checkpoint, made if there is none, and put our name on it."""

        def work(tx: Any) -> Kept:
            checkpoint = self._checkpoint
            kept = checkpoint.read(tx)
            if kept is None:
                mark = Mark(run=self._by[0], crashes=self._by[1])
                checkpoint.begin(tx, mark)
                return Kept(mark, Counts(), self._reader.shape, self._run.token)
            if kept.mark.is_done or kept.mark.run == self._run.id:
                return kept
            taken = kept.mark.taken(by=self._by)
            checkpoint.move(tx, kept.mark, taken, kept.counts)
            return kept._replace(mark=taken)

        return self._run.in_transaction(work, self._target)

    def _read_and_land(self, feed: Any, lander: Lander, processor: Processor, losses: int) -> None:
        depth = 0 if losses > 1 else self._it.step.options.read_ahead
        pages = ReadAhead(self._runtime, feed, lander.mark.after, lambda: self._size, depth=depth)
        try:
            while True:
                page = pages.next()
                self._run.check()
                if not page.items:
                    lander.finish()
                    return
                started_at = self._runtime.monotonic()
                lander.land(self._processed(page, lander, processor, losses))
                losses = 0
                self._resize(page, self._runtime.monotonic() - started_at)
                self._watch(lander.counts)
                if page.is_last:
                    return
        finally:
            pages.close()

    def _processed(self, page: Page, lander: Lander, processor: Processor, losses: int) -> Processed:
        if losses < self._it.step.options.crash_limit or len(page.items) > 1:
            return processor.process(page)
        done = Processed(page, [OMITTED], {})
        lander.put_aside(done, 0, WorkerLost(f"its worker was lost {losses} times at this item"), losses)
        return done

    def _resize(self, page: Page, took_s: float) -> None:
        options = self._it.step.options
        if options.sizing.is_fixed:
            self._size = min(self._size * 2, options.sizing.chunk)
            return
        size = page.size_bytes / len(page.items) if page.size_bytes else bytes_of(page.items)
        measured = Measured(len(page.items), size, took_s)
        copies = options.read_ahead + COPIES_BESIDE_READ_AHEAD
        self._size = options.sizing.following(self._size, measured, copies=copies, workers=self._it.workers)
