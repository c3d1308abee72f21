"""Replays dead letters: processes failed items again, in a run of its own.

**Promises.** Each letter is written in a fenced transaction that also marks it as replayed, by compare-and-set. So two
concurrent replays, or one that was lost and restarted, write it once. A letter that fails again stays `new`, with its
new error and one more attempt. A letter without its item is skipped. A record that could not be parsed is parsed again
by the step's current reader, and fails again if that is still not possible.

**Order.** By their ids, except that items that have crashed their worker come last, because they may do so again.

Letters of another ledger that writes to the same database, and has a job with the same name, are skipped.

**Not promised.** That the counts of the run that stored the letters change. They describe what happened then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fencepost.bulk.failures import MENDED_BY_TIME, ChunkVerdict, verdict_of
from fencepost.bulk.letters import NEW, REPLAYED, LetterFilter, StoredLetter, fail_again, letters, letters_by_id, settle
from fencepost.bulk.partition import WorkerLost
from fencepost.bulk.patience import TRIES, asked, pause, pause_before, steadily
from fencepost.bulk.reader import Unread
from fencepost.bulk.watching import EVERY_S
from fencepost.core.report import code_of
from fencepost.core.verdicts import Retry, Skip
from fencepost.engine.run import attempt_of
from fencepost.errors import BrokenInput, InvalidBulk

if TYPE_CHECKING:
    from fencepost.bulk.definition import Bulk, Step
    from fencepost.engine.run import Run

_PAGE = 100  # letters that are kept in memory at once, each with its item
_LOST = code_of(WorkerLost())


class LetterFate(StrEnum):
    """The result of replaying a letter."""

    REPLAYED = "replayed"  # written, or left out by `process`
    FAILED = "failed"  # again
    REFUSED = "refused"  # it has no item, or its step no longer exists
    SETTLED = "settled before"  # another replay, or an operator, was faster


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters to replay: these ids, or all new ones up to an id; optionally of one step only."""

    jobs: tuple[str, ...]
    ids: tuple[int, ...] = ()
    upto: int = 0
    step: str = ""


class Replay:
    """Replays letters for a run. `made` returns the job with the parameters of the run that stored the letter."""

    def __init__(self, run: Run, choice: Choice, made: Callable[[StoredLetter], Bulk]) -> None:
        self._run = run
        self._writer = attempt_of(run).writer()
        self._choice = choice
        self._made = made
        self._bulks: dict[int | None, Bulk] = {}
        self._told_at = attempt_of(run).context.runtime.monotonic()
        self.fates = dict.fromkeys(LetterFate, 0)

    def replay(self, targets: Sequence[Any]) -> dict[str, int]:
        """Replay the chosen letters in each of these databases; return how many had which result."""
        for is_last in (False, True):
            for target in targets:
                for letter in self._chosen(target):
                    if (letter.error_code == _LOST) is is_last:
                        self._run.check()
                        self._note(letter, self._replayed(letter, target))
        return {str(fate): count for fate, count in self.fates.items()}

    def _note(self, letter: StoredLetter, fate: LetterFate) -> None:
        self.fates[fate] += 1
        self._run.log.info("dead letter %d (%s): %s", letter.id, letter.item_key, fate)
        now = attempt_of(self._run).context.runtime.monotonic()
        if now - self._told_at >= EVERY_S:
            self._told_at = now
            counts = " ".join(f"{name.replace(' ', '-')}={count}" for name, count in self.fates.items())
            total = len(self._choice.ids)
            attempt_of(self._run).show(sum(self.fates.values()) / total if total else 0.0, counts)

    def _chosen(self, target: Any) -> Iterator[StoredLetter]:
        ledger = asked(self._run, attempt_of(self._run).context.naming).ledger
        for page in self._pages(target):
            for each in page:
                if self._choice.step in ("", each.step) and each.is_of(ledger):
                    yield each

    def _pages(self, target: Any) -> Iterator[list[StoredLetter]]:
        choice, writer = self._choice, self._writer
        if choice.ids:
            found = steadily(self._run, lambda tx: letters_by_id(tx, writer, choice.jobs, choice.ids), target)
            yield [each for each in found if each.state == NEW]
            return
        wanted, after = LetterFilter(choice.jobs, NEW), 0
        while page := steadily(
            self._run,
            lambda tx, after=after: letters(tx, writer, wanted, after_id=after, limit=_PAGE),  # type: ignore[misc]
            target,
        ):
            yield [each for each in page if each.id <= choice.upto]
            after = page[-1].id
            if after >= choice.upto:
                return

    # -- one letter ----------------------------------------------------------------------------------------------------

    def _replayed(self, letter: StoredLetter, target: Any) -> LetterFate:
        try:
            step = self._bulk(letter).step(letter.step)
            item = letter.item() if letter.unread is None else _reread(letter.unread, step, letter)
        except BrokenInput as error:
            return self._failed_again(letter, error, target)
        except (InvalidBulk, TypeError, ValueError) as error:
            self._run.log.warning("dead letter %d is skipped: %s", letter.id, error)
            return LetterFate.REFUSED
        try:
            result = self._processed(step, item)
            return self._landed(letter, step, result, target)
        except Exception as error:
            if verdict_of(error) is not ChunkVerdict.ITEM:
                raise
            again = error
        return self._failed_again(letter, again, target)

    def _failed_again(self, letter: StoredLetter, error: Exception, target: Any) -> LetterFate:
        steadily(self._run, lambda tx: fail_again(tx, self._writer, letter.id, error), target)
        return LetterFate.FAILED

    def _bulk(self, letter: StoredLetter) -> Bulk:
        if letter.run_id not in self._bulks:
            self._bulks[letter.run_id] = self._made(letter)
        return self._bulks[letter.run_id]

    def _processed(self, step: Step, item: Any) -> Any:
        """Process an item, and retry when it raises `Retry`."""
        if step.process is None:
            return item
        tries = 0
        while True:
            tries += 1
            try:
                result = step.process(item)
                return self._awaited(result) if step.is_async else result
            except Retry as error:
                self._wait_as_asked(step, error, tries)

    def _awaited(self, coroutine: Any) -> Any:
        import asyncio  # noqa: PLC0415 - the import takes 30 ms, and most jobs do not need it

        return asyncio.run(coroutine)

    def _landed(self, letter: StoredLetter, step: Step, result: Any, target: Any) -> LetterFate:
        """Write the result of an item and mark its letter, in one transaction."""

        def work(tx: Any) -> bool:
            if not settle(tx, self._writer, letter.id, REPLAYED):
                return False
            if result is not None and step.write is not None:
                step.write(tx, [result])
            return True

        tries, was_in_doubt = 0, False
        while True:
            tries += 1
            try:
                is_ours = self._run.in_transaction(work, target)
            except Exception as error:  # noqa: BLE001 - `verdict_of` decides
                verdict = verdict_of(error)
                was_in_doubt = was_in_doubt or verdict is ChunkVerdict.UNKNOWN
                self._wait_or_raise(step, error, verdict, tries)
            else:
                # After a COMMIT without reply, a letter that is no longer new may be our own work. It is written once.
                return LetterFate.REPLAYED if is_ours or was_in_doubt else LetterFate.SETTLED

    def _wait_or_raise(self, step: Step, error: Exception, verdict: ChunkVerdict, tries: int) -> None:
        if isinstance(error, Retry):
            self._wait_as_asked(step, error, tries)
        elif verdict in MENDED_BY_TIME and tries < TRIES:
            pause_before(self._run, tries)
        else:
            raise error

    def _wait_as_asked(self, step: Step, error: Retry, tries: int) -> None:
        if tries > step.options.retry_limit:
            raise Skip(f"still failing after {tries} tries: {error}") from error
        backoff_s = step.options.backoff.delay_s(tries, attempt_of(self._run).context.runtime.random())
        pause(self._run, backoff_s if error.after_s is None else error.after_s)


def _reread(unread: Unread, step: Step, letter: StoredLetter) -> Any:
    """Parse a record again that could not be parsed."""
    reread = getattr(step.read, "reread", None)
    if reread is None:
        raise InvalidBulk(
            f"dead letter {letter.id} ({letter.item_key}) cannot be replayed: it is a record that could not be "
            f"parsed, and {step.read!r} cannot parse a single record. Correct the input and read it again "
            "(fencepost bulk again RUN), or drop it"
        )
    try:
        return reread(unread.raw, unread.context)
    except BrokenInput as error:
        raise BrokenInput(
            f"{unread.place} still cannot be read: {error}. Correct the reader's options and replay it, or correct "
            "the record in the input and read it with another run; then drop this letter"
        ) from None
