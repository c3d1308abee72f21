"""Chunks on their way into the target: written, counted, and marked as done in one fenced transaction each.

**Promises.** When `land` returns, the items of the page have each been written, filtered or put aside, once, and the
checkpoint says so. When it raises, all before some item have, and the checkpoint says up to which. A lost answer to
COMMIT is looked up in the checkpoint, not guessed.

**How a poison item is found.** A chunk that fails because of its data is divided, and each half lands by itself, down
to the one item that fails alone. That one is put aside as a dead letter, if the skip limit allows it. But first the
checkpoint is looked at: where another hand has landed the chunk, its rows are in our way, and no item is at fault.

**Not promised.** That `write` is called once for an item: it is called again with the same items after a roll-back.
What it does beside the transaction, it may do twice. That the skip limit is met exactly where partitions put items
aside at the same moment: each looks at what the others have landed, so it may be exceeded by one for each of them.
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
from fencepost.core.texts import told
from fencepost.core.verdicts import Retry, Skip
from fencepost.engine.run import attempt_of
from fencepost.engine.transactions import RunTransaction
from fencepost.errors import BrokenInput, LeaseLost, TooManySkipped

if TYPE_CHECKING:
    from fencepost.bulk.definition import Step
    from fencepost.bulk.instance import Instance
    from fencepost.engine.run import Run

OMITTED: Any = object()  # stands for an item that was put aside


@dataclass(slots=True)
class Processed:
    """The items of a page and what was made of them: None where filtered, `OMITTED` where put aside."""

    page: Page
    results: list[Any]
    letters: dict[int, Letter]


class Lander:
    """Lands the chunks of one partition. `mark` and `counts` are where it stands: what has landed."""

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
        """Land a page: all of it, or all before the item that is one too many to be put aside."""
        self._land(done, 0, len(done.page.items))

    def finish(self) -> None:
        """Note that nothing follows."""
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
            # Whoever landed this chunk before us has made what we now meet: a key twice is then no fault of an item.
            self._has_landed(None, error)
            self._divide(done, first, end, error)

    def _is_divided_after(self, error: Exception, done: Processed, first: int, end: int) -> bool:
        """Whether to look among these items for the one that an error is about."""
        verdict, is_alone = verdict_of(error), end - first == 1
        if verdict is ChunkVerdict.LESS:
            return not is_alone
        return verdict is ChunkVerdict.ITEM and not (
            is_alone and first in done.letters
        )  # then it is the letter that fails

    def _divide(self, done: Processed, first: int, end: int, error: Exception) -> None:
        if end - first == 1:
            self.put_aside(done, first, error)
            self._land(done, first, end)
            return
        self._run.log.info(
            "items %d to %d of a chunk are divided to find the one that fails: %s", first, end, told(error)
        )
        middle = (first + end) // 2
        self._land(done, first, middle)
        self._land(done, middle, end)

    def _commit(self, done: Processed, first: int, end: int) -> None:
        """Land a span in one transaction, as it is."""
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
                # A copy: who takes items off its list gets all of them when the chunk is tried again.
                refuse_unwritten(write(tx, out.copy()), self._step.name)
            if letters:
                put_aside(tx, letters, self._writer)

        self._move_on(after, counts, effects)

    def _move_on(self, after: CheckpointMark, counts: Counts, effects: Callable[[Any], None]) -> None:
        """Commit effects together with the checkpoint, however often the database makes us try."""
        tries = 0
        while True:
            tries += 1
            try:
                transaction = RunTransaction(self._run, self._target, final=False)
                with transaction as tx:
                    effects(tx)
                    transaction.end_with(self._checkpoint.moving(tx, self.mark, after, counts))
            except Exception as error:  # noqa: BLE001 - judged by what it is about
                verdict = verdict_of(error)
                if verdict is ChunkVerdict.UNKNOWN and self._has_landed(after, error):
                    break
                self._wait_or_raise(error, verdict, tries)
            else:
                break
        self.mark, self.counts = after, counts

    def _has_landed(self, after: CheckpointMark | None, error: Exception) -> bool:
        """Look whether what was on its way is there; `CheckpointMoved` if something else is."""
        try:
            with self._run.transaction(self._target) as tx:
                kept = self._checkpoint.read(tx)
        except LeaseLost:
            raise
        except Exception as trouble:
            if verdict_of(trouble) in MENDED_BY_TIME:
                return False  # nobody knows yet; the next try looks again
            raise
        stands_at = None if kept is None else kept.mark.to_json()
        if kept is not None and after is not None and stands_at == after.to_json() and kept.token == self._writer.token:
            return True
        if stands_at != self.mark.to_json():
            raise CheckpointMoved(f"the checkpoint {self._checkpoint.name!r} was moved by somebody else") from error
        return False

    def _wait_or_raise(self, error: Exception, verdict: ChunkVerdict, tries: int) -> None:
        if verdict is ChunkVerdict.ASKED:
            self._wait_as_asked(error, tries)
            return
        if verdict not in MENDED_BY_TIME or tries >= TRIES or isinstance(error, CheckpointMoved):
            raise error
        self._run.log.info("a chunk of %s is tried again: %s", attempt_of(self._run).label, told(error))
        pause_before(self._run, tries)

    def _wait_as_asked(self, error: Exception, tries: int) -> None:
        options = self._step.options
        if tries > options.retry_limit:
            raise Skip(f"still failing after {tries} tries: {told(error)}") from error
        self.pause_as_asked(error, tries)

    def pause_as_asked(self, error: Exception, tries: int) -> None:
        """Wait as long as a `Retry` says, or else by the step's back-off."""
        after_s = error.after_s if isinstance(error, Retry) else None
        backoff_s = self._step.options.backoff.delay_s(tries, self._runtime.random())
        pause(self._run, backoff_s if after_s is None else after_s)

    # -- items that fail -----------------------------------------------------------------------------------------------

    def put_aside(self, done: Processed, index: int, error: BaseException, tries: int = 1) -> None:
        """Put an item of a page aside: it lands as a dead letter, if the skip limit allows it."""
        item = done.page.items[index]
        if isinstance(item, Unread):  # whatever else befell it: as it is, nothing can be made of it
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
        """Return the first item of a span that was put aside although the skip limit does not allow it."""
        aside = sorted(index for index in done.letters if first <= index < end) if done.letters else []
        if not aside:
            return None
        left = self._step.options.skip_limit - self.counts.skipped - self._skipped_elsewhere()
        return aside[max(left, 0)] if left < len(aside) else None

    def _too_many(self, letter: Letter) -> TooManySkipped:
        limit, (_, written, _, skipped, _) = self._step.options.skip_limit, self.counts
        return TooManySkipped(
            f"item {letter.item_key} failed, and skip_limit is {limit}: {letter.error_code}: {letter.error}. All "
            f"before it has landed ({written} written, {skipped} skipped in this partition). Mend the item "
            f"or raise skip_limit, then restart the run: it goes on there (fencepost retry {self._instance.parent})"
        )

    def _label(self, item: Any) -> str:
        if isinstance(item, Unread):
            return item.place
        reader = self._step.read
        return reader.label(item) if reader is not None else repr(item)[:100]
