"""Writes chunks to the target: the items, the counts and the checkpoint of a chunk are one fenced transaction.

**Promises.** When `land` returns, each item of the page has been written, filtered or stored as a dead letter, once,
and the checkpoint records it. When it raises, this is true for all items before some item, and the checkpoint records
which. After a COMMIT without reply, the checkpoint shows whether it happened.

**How a bad item is found.** A chunk that fails because of its data is divided, and each half lands separately, down to
the one item that fails alone. That item is stored as a dead letter, if the skip limit allows it. Before dividing, the
checkpoint is read: if another attempt has landed the chunk, its rows cause the conflict, and no item is at fault.

**Not promised.** That `write` is called once for an item: it is called again with the same items after a rollback, and
what it does outside the transaction may happen twice. That the skip limit is exact if partitions skip items at the same
moment: each counts only what the others have landed, so the limit may be exceeded by one for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.bulk.checkpoint import Checkpoint, CheckpointMark, CheckpointMoved, Counts, StoredCheckpoint
from fencepost.bulk.failures import MENDED_BY_TIME, ChunkVerdict, verdict_of
from fencepost.bulk.letters import Letter, letter_of, put_aside
from fencepost.bulk.patience import TRIES, pause, pause_before
from fencepost.bulk.reader import Page, Unread
from fencepost.bulk.unfinished import refuse_once_only, refuse_unwritten
from fencepost.core.texts import error_text
from fencepost.core.verdicts import Retry, Skip
from fencepost.engine.run import attempt_of
from fencepost.engine.transactions import RunTransaction
from fencepost.errors import BrokenInput, LeaseLost, TooManySkipped

if TYPE_CHECKING:
    from fencepost.bulk.definition import Step
    from fencepost.bulk.instance import Instance
    from fencepost.engine.run import Run

OMITTED: Any = object()  # the result of an item that is stored as a dead letter


@dataclass(slots=True)
class Processed:
    """The items of a page and their results: None for a filtered item, `OMITTED` for a dead letter."""

    page: Page
    results: list[Any]
    letters: dict[int, Letter]


class Lander:
    """Lands the chunks of one partition. `mark` and `counts` are what has landed so far."""

    def __init__(
        self,
        run: Run,
        *,
        step: Step,
        target: Any,
        checkpoint: Checkpoint,
        kept: StoredCheckpoint,
        instance: Instance,
        skipped_elsewhere: Callable[[], int],
    ) -> None:
        self._run = run
        self._runtime = attempt_of(run).context.runtime
        self._step = step
        self._target = target
        self._checkpoint = checkpoint
        self._instance = instance
        self._skipped_elsewhere = skipped_elsewhere
        self._writer = attempt_of(run).writer()
        self._by = (run.id, run.crashes)
        self.mark = kept.mark
        self.counts = kept.counts

    def land(self, done: Processed) -> None:
        """Land a page: all of it, or everything before the item that exceeds the skip limit."""
        self._land(done, 0, len(done.page.items))

    def finish(self) -> None:
        """Record that the partition is done."""
        self._move_on(self.mark.moved(self.mark.after, by=self._by, is_done=True), self.counts, lambda _: None)

    # -- one span of a page --------------------------------------------------------------------------------------------

    def _land(self, done: Processed, first: int, end: int) -> None:
        beyond = self._first_beyond_limit(done, first, end)
        if beyond is not None:
            self._land(done, first, beyond)
            raise self._too_many(done.letters[beyond])
        if first >= end:
            return
        try:
            self._commit(done, first, end)
        except Exception as error:
            if not self._is_divided_after(error, done, first, end):
                raise
            # If another attempt has landed this chunk, a duplicate key is not the fault of an item.
            self._has_landed(None, error)
            self._divide(done, first, end, error)

    def _is_divided_after(self, error: Exception, done: Processed, first: int, end: int) -> bool:
        """Whether to divide these items to find the one that caused the error."""
        verdict, is_alone = verdict_of(error), end - first == 1
        if verdict is ChunkVerdict.LESS:
            return not is_alone
        return verdict is ChunkVerdict.ITEM and not (
            is_alone and first in done.letters
        )  # otherwise it is the letter that fails

    def _divide(self, done: Processed, first: int, end: int, error: Exception) -> None:
        if end - first == 1:
            self.put_aside(done, first, error)
            self._land(done, first, end)
            return
        self._run.log.info(
            "dividing items %d to %d of a chunk to find the one that fails: %s", first, end, error_text(error)
        )
        middle = (first + end) // 2
        self._land(done, first, middle)
        self._land(done, middle, end)

    def _commit(self, done: Processed, first: int, end: int) -> None:
        """Land a span in one transaction, undivided."""
        results = done.results if end - first == len(done.results) else done.results[first:end]
        out = [each for each in results if each is not None and each is not OMITTED]
        letters = [done.letters[index] for index in range(first, end) if index in done.letters] if done.letters else []
        counts = self.counts.plus(
            Counts(len(results), len(out), len(results) - len(out) - len(letters), len(letters), 1)
        )
        is_done = done.page.is_last and end == len(done.page.items)
        position = done.page.position_after(end - 1)
        after = self.mark.moved(position, by=self._by, items=len(results), is_done=is_done)
        write = self._step.write

        refuse_once_only(out, self._step.name)

        def effects(tx: Any) -> None:
            if out and write is not None:
                # A copy, so that a `write` that removes items from its list gets all of them in a retry.
                refuse_unwritten(write(tx, out.copy()), self._step.name)
            if letters:
                put_aside(tx, letters, self._writer)

        self._move_on(after, counts, effects)

    def _move_on(self, after: CheckpointMark, counts: Counts, effects: Callable[[Any], None]) -> None:
        """Commit effects together with the checkpoint, and retry after errors of the database."""
        tries = 0
        while True:
            tries += 1
            try:
                transaction = RunTransaction(self._run, self._target, final=False)
                with transaction as tx:
                    effects(tx)
                    transaction.end_with(self._checkpoint.moving(tx, self.mark, after, counts))
            except Exception as error:  # noqa: BLE001 - `verdict_of` decides
                verdict = verdict_of(error)
                if verdict is ChunkVerdict.UNKNOWN and self._has_landed(after, error):
                    break
                self._wait_or_raise(error, verdict, tries)
            else:
                break
        self.mark, self.counts = after, counts

    def _has_landed(self, after: CheckpointMark | None, error: Exception) -> bool:
        """Whether the checkpoint shows that the chunk has landed. `CheckpointMoved` if it is somewhere else."""
        try:
            with self._run.transaction(self._target) as tx:
                kept = self._checkpoint.read(tx)
        except LeaseLost:
            raise
        except Exception as trouble:
            if verdict_of(trouble) in MENDED_BY_TIME:
                return False  # still unknown; the next try checks again
            raise
        stands_at = None if kept is None else kept.mark.to_json()
        if kept is not None and after is not None and stands_at == after.to_json() and kept.token == self._writer.token:
            return True
        if stands_at != self.mark.to_json():
            raise CheckpointMoved(f"another attempt has moved the checkpoint {self._checkpoint.name!r}") from error
        return False

    def _wait_or_raise(self, error: Exception, verdict: ChunkVerdict, tries: int) -> None:
        if verdict is ChunkVerdict.ASKED:
            self._wait_as_asked(error, tries)
            return
        if verdict not in MENDED_BY_TIME or tries >= TRIES or isinstance(error, CheckpointMoved):
            raise error
        self._run.log.info("retrying a chunk of %s: %s", attempt_of(self._run).label, error_text(error))
        pause_before(self._run, tries)

    def _wait_as_asked(self, error: Exception, tries: int) -> None:
        options = self._step.options
        if tries > options.retry_limit:
            raise Skip(f"still failing after {tries} tries: {error_text(error)}") from error
        self.pause_as_asked(error, tries)

    def pause_as_asked(self, error: Exception, tries: int) -> None:
        """Wait as long as the `Retry` says, or else for the step's back-off."""
        after_s = error.after_s if isinstance(error, Retry) else None
        backoff_s = self._step.options.backoff.delay_s(tries, self._runtime.random())
        pause(self._run, backoff_s if after_s is None else after_s)

    # -- items that fail -----------------------------------------------------------------------------------------------

    def put_aside(self, done: Processed, index: int, error: BaseException, tries: int = 1) -> None:
        """Make an item of a page a dead letter. It lands if the skip limit allows it."""
        item = done.page.items[index]
        if isinstance(item, Unread):  # whatever other error occurred: it could not be parsed
            error = BrokenInput(item.why)
        done.results[index] = OMITTED
        tries = max(tries, self._run.attempt)
        done.letters[index] = letter_of(
            item,
            self._label(item),
            error,
            step=self._step.name,
            instance=self._instance.name,
            tries=tries,
            params=self._instance.params,
        )

    def _first_beyond_limit(self, done: Processed, first: int, end: int) -> int | None:
        """Return the first item of a span whose dead letter exceeds the skip limit."""
        aside = sorted(index for index in done.letters if first <= index < end) if done.letters else []
        if not aside:
            return None
        left = self._step.options.skip_limit - self.counts.skipped - self._skipped_elsewhere()
        return aside[max(left, 0)] if left < len(aside) else None

    def _too_many(self, letter: Letter) -> TooManySkipped:
        limit, (_, written, _, skipped, _) = self._step.options.skip_limit, self.counts
        return TooManySkipped(
            f"item {letter.item_key} failed, and skip_limit is {limit}: {letter.error_code}: {letter.error}. All items "
            f"before it have landed ({written} written, {skipped} skipped in this partition). Correct the item or "
            f"raise skip_limit, then restart the run: it continues there (fencepost retry {self._instance.parent})"
        )

    def _label(self, item: Any) -> str:
        if isinstance(item, Unread):
            return item.place
        reader = self._step.read
        return reader.label(item) if reader is not None else repr(item)[:100]
