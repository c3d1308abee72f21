"""Reads the next page while the current one is processed and written.

Pages that were read ahead use memory, so their number is limited: the reader waits until a page is taken
(back-pressure).

Some feeds can send the query for the next page early (``can_ask``, ``ask(after, limit)``) and receive its rows when the
page is read. They need no thread, which would compete for the interpreter. All other feeds get a thread. The rows are
received while a chunk is being committed, when we would only wait for the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from fencepost.bulk.reader import Feed, Page, Position

if TYPE_CHECKING:
    from fencepost.core.runtime import Runtime

_LOOK_EVERY_S = 1.0  # how late a page or a free place is noticed if its signal was cleared a moment too late


class ReadAhead:
    """Returns the pages of a feed one after the other, and reads up to `depth` of them ahead.

    `size` returns the number of items for a page, and is called before each page.
    """

    def __init__(self, runtime: Runtime, feed: Feed, after: Position, size: Callable[[], int], *, depth: int) -> None:
        self._feed = feed
        self._after = after
        self._size = size
        self._depth = depth
        self._ask: Callable[[Position, int], None] | None = None
        self._asked: int | None = None  # the limit of the query that was sent
        if depth and getattr(feed, "can_ask", False):
            self._ask, depth = getattr(feed, "ask"), 0  # noqa: B009 - not every feed has it
        self._ready: deque[Page | BaseException] = deque()
        self._came = runtime.event()
        self._taken = runtime.event()
        self._is_over = False
        self._task = runtime.spawn("fencepost-read-ahead", self._read_all) if depth else None

    def next(self) -> Page:
        """Return the next page, or raise the error of reading it."""
        while not self._ready:
            if self._task is None:
                return self._read()
            self._came.wait(_LOOK_EVERY_S)
            if not self._ready:
                self._came.clear()
        page = self._ready.popleft()
        self._taken.set()
        if isinstance(page, BaseException):
            raise page
        return page

    def take(self) -> None:
        """Read the page whose query was sent, while there is time. `next` returns it, or raises the error."""
        if self._asked is None or self._ready:
            return
        try:
            self._ready.append(self._read())
        except BaseException as error:  # noqa: BLE001 - raised by `next`
            self._ready.append(error)

    def close(self) -> None:
        """Stop reading. When this returns, the feed is no longer in use."""
        self._is_over = True
        self._taken.set()
        if self._task is not None:
            self._task.join()

    def _read(self) -> Page:
        limit, self._asked = self._asked or self._size(), None
        page = self._feed.read(self._after, limit)
        if page.items:
            self._after = page.position_after(len(page.items) - 1)
        if self._ask is not None and not page.is_last:
            self._asked = self._size()
            self._ask(self._after, self._asked)
        return page

    def _read_all(self) -> None:
        try:
            while not self._is_over:
                if len(self._ready) >= self._depth:
                    self._taken.wait(_LOOK_EVERY_S)
                    self._taken.clear()
                    continue
                page = self._read()
                self._ready.append(page)
                self._came.set()
                if page.is_last:
                    return
        except BaseException as error:  # noqa: BLE001 - raised by `next`
            self._ready.append(error)
            self._came.set()
