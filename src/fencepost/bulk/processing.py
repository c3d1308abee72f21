"""What is done with each item before it is written: in the process of the run, outside of any transaction.

One item that fails does not stop the others: it is tried again if its code asks for that, and else put aside. Order is
kept. A coroutine processes several items at once, as many as `concurrency` allows. What the reader could not understand
is put aside without being processed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from itertools import islice
from typing import TYPE_CHECKING, Any

from fencepost.bulk.failures import ChunkVerdict, verdict_of
from fencepost.bulk.landing import OMITTED, Lander, Processed
from fencepost.bulk.reader import Page, Unread
from fencepost.core.verdicts import Retry, Skip
from fencepost.errors import BrokenInput

if TYPE_CHECKING:
    import asyncio

    from fencepost.bulk.definition import Step


_WORTH_ANOTHER_TRY = (
    ChunkVerdict.ASKED,
    ChunkVerdict.AGAIN,
    ChunkVerdict.UNKNOWN,
)  # the last two: of a database it asks


class Processor:
    """Processes pages for one partition. Close it: a coroutine's loop is kept from page to page."""

    def __init__(self, step: Step, lander: Lander) -> None:
        self._step = step
        self._lander = lander
        self._runner: asyncio.Runner | None = None

    def process(self, page: Page) -> Processed:
        """Process all items of a page."""
        process = self._step.process
        if process is None:
            return self._unprocessed(page)
        if page.unread:
            process = _of_those_that_were_read(process, is_async=self._step.is_async)
        if self._step.is_async:
            return self._process_async(page, process)
        done = Processed(page, [], {})
        results, items = done.results, page.items
        while len(results) < len(items):
            try:
                results.extend(map(process, islice(items, len(results), None)))  # what came before an error stays
                if len(results) < len(items):
                    raise RuntimeError("process() raised StopIteration")  # noqa: TRY301 - by which a map only ends
            except Exception as error:  # noqa: BLE001 - judged by what it is about
                self._settle(done, error, process)
        return done

    def close(self) -> None:
        """End the coroutines' loop."""
        if self._runner is not None:
            self._runner.close()

    def _unprocessed(self, page: Page) -> Processed:
        done = Processed(page, list(page.items), {})
        for index, unread in page.unread.items():
            self._lander.put_aside(done, index, BrokenInput(unread.why))
        return done

    def _settle(self, done: Processed, error: Exception, again: Callable[[Any], Any]) -> None:
        """Come to terms with the item that failed: the one after the results there are."""
        index = len(done.results)
        if index in done.page.unread:
            done.results.append(OMITTED)
            self._lander.put_aside(done, index, error)
            return
        item = done.page.items[index]
        tries = 1
        while (verdict := verdict_of(error)) in _WORTH_ANOTHER_TRY and tries <= self._step.options.retry_limit:
            self._lander.pause_as_asked(error, tries)
            tries += 1
            try:
                done.results.append(again(item))
            except Exception as next_error:  # noqa: BLE001 - judged by what it is about
                error = next_error
            else:
                return
        if verdict not in (ChunkVerdict.ITEM, ChunkVerdict.ASKED):
            raise error
        done.results.append(OMITTED)
        self._lander.put_aside(done, index, _given_up(error, tries), tries)

    # -- coroutines ----------------------------------------------------------------------------------------------------

    def _process_async(self, page: Page, process: Callable[[Any], Coroutine[Any, Any, Any]]) -> Processed:
        outcomes = self._run(self._gathered(page, process))
        done = Processed(page, [], {})
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                self._settle(done, outcome, lambda item: self._run(process(item)))
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                done.results.append(outcome)
        return done

    async def _gathered(self, page: Page, process: Callable[[Any], Coroutine[Any, Any, Any]]) -> list[Any]:
        import asyncio  # noqa: PLC0415 - costs those who do not need it 30 ms

        turns = asyncio.Semaphore(self._step.options.concurrency)

        async def one(item: Any) -> Any:
            async with turns:
                return await process(item)

        return await asyncio.gather(*(one(item) for item in page.items), return_exceptions=True)

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio  # noqa: PLC0415 - as above

        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)


def _of_those_that_were_read(process: Callable[[Any], Any], *, is_async: bool) -> Callable[[Any], Any]:
    """Return what processes items, and fails at those that could not be understood."""

    def one(item: Any) -> Any:
        if type(item) is Unread:
            raise BrokenInput(item.why)
        return process(item)

    async def one_awaited(item: Any) -> Any:
        return await one(item)

    return one_awaited if is_async else one


def _given_up(error: Exception, tries: int) -> Exception:
    """Return what to write into the letter of an item that asked for one more try than it may have."""
    if not isinstance(error, Retry):
        return error
    given_up = Skip(f"still failing after {tries} tries: {error}")
    given_up.__cause__ = error.__cause__
    return given_up
