"""Calls `process` for each item before it is written: in the process of the run, outside any transaction.

A failed item does not stop the others: it is retried if its code asks for that, otherwise it becomes a dead letter. The
order is kept. A coroutine processes several items at once, as many as `concurrency` allows. Records that the reader
could not parse become dead letters without being processed.
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
)  # the last two are errors of a database that `process` uses


class Processor:
    """Processes pages for one partition. Close it, because it keeps the event loop of coroutines between pages."""

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
                results.extend(map(process, islice(items, len(results), None)))  # results before an error are kept
                if len(results) < len(items):
                    raise RuntimeError("process() raised StopIteration")  # noqa: TRY301 - which only ends a map
            except Exception as error:  # noqa: BLE001 - `verdict_of` decides
                self._settle(done, error, process)
        return done

    def close(self) -> None:
        """Close the event loop of coroutines."""
        if self._runner is not None:
            self._runner.close()

    def _unprocessed(self, page: Page) -> Processed:
        done = Processed(page, list(page.items), {})
        for index, unread in page.unread.items():
            self._lander.put_aside(done, index, BrokenInput(unread.why))
        return done

    def _settle(self, done: Processed, error: Exception, again: Callable[[Any], Any]) -> None:
        """Handle the item that failed, which is the one after the last result: retry it, or skip it."""
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
            except Exception as next_error:  # noqa: BLE001 - `verdict_of` decides
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
        import asyncio  # noqa: PLC0415 - the import takes 30 ms, and most jobs do not need it

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
    """Return a function that processes an item, and raises for a record that could not be parsed."""

    def one(item: Any) -> Any:
        if type(item) is Unread:
            raise BrokenInput(item.why)
        return process(item)

    async def one_awaited(item: Any) -> Any:
        return await one(item)

    return one_awaited if is_async else one


def _given_up(error: Exception, tries: int) -> Exception:
    """Return the error for the letter of an item that has used up its retries."""
    if not isinstance(error, Retry):
        return error
    given_up = Skip(f"still failing after {tries} tries: {error}")
    given_up.__cause__ = error.__cause__
    return given_up
