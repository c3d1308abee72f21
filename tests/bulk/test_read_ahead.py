"""Reading ahead: the next page is there in time, no more than that, and errors come in their order."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fencepost.bulk.read_ahead import ReadAhead
from fencepost.bulk.reader import Page
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()


class Numbers:
    """A feed of numbers that notes what is read of it; `upto` is the last."""

    def __init__(self, upto: int, error: Exception | None = None) -> None:
        self.upto = upto
        self.error = error
        self.reads: list[tuple[Any, int]] = []
        self.threads: set[int] = set()

    def read(self, after: Any, limit: int) -> Page:
        self.threads.add(threading.get_ident())
        self.reads.append((after, limit))
        first = 1 if after is None else after + 1
        if self.error is not None and first > self.upto:
            raise self.error
        items = list(range(first, min(first + limit, self.upto + 1)))
        is_last = self.error is None and (not items or items[-1] >= self.upto)
        return Page(items, lambda index: items[index], is_last)

    def close(self) -> None: ...


def all_of(pages: ReadAhead) -> list[int]:
    found: list[int] = []
    while True:
        page = pages.next()
        found += page.items
        if page.is_last:
            return found


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_pages_come_in_order_each_once(depth: int) -> None:
    pages = ReadAhead(RUNTIME, Numbers(100), None, lambda: 7, depth=depth)
    assert all_of(pages) == list(range(1, 101))
    pages.close()


@pytest.mark.parametrize("depth", [1, 3])
def test_no_more_is_read_than_the_depth_allows(depth: int) -> None:
    feed = Numbers(100)
    pages = ReadAhead(RUNTIME, feed, None, lambda: 5, depth=depth)
    until(lambda: len(feed.reads) == depth, 5, "it has read ahead")
    threading.Event().wait(0.1)  # time in which it might read too much
    assert len(feed.reads) == depth
    pages.next()
    until(lambda: len(feed.reads) == depth + 1, 5, "it has read one more")
    pages.close()
    assert len(feed.reads) == depth + 1
    assert threading.get_ident() not in feed.threads


def test_it_begins_after_a_position_and_asks_for_the_size_before_each_page() -> None:
    feed, sizes = Numbers(30), iter([2, 4, 8, 16, 32])
    pages = ReadAhead(RUNTIME, feed, 10, lambda: next(sizes), depth=0)
    assert all_of(pages) == list(range(11, 31))
    assert feed.reads == [(10, 2), (12, 4), (16, 8), (24, 16)]


@pytest.mark.parametrize("depth", [0, 2])
def test_what_was_read_before_an_error_is_delivered_first(depth: int) -> None:
    pages = ReadAhead(RUNTIME, Numbers(10, OSError("gone")), None, lambda: 5, depth=depth)
    assert pages.next().items == [1, 2, 3, 4, 5]
    assert pages.next().items == [6, 7, 8, 9, 10]
    with pytest.raises(OSError, match="gone"):
        pages.next()
    pages.close()


def test_closing_leaves_nobody_at_the_feed() -> None:
    feed = Numbers(10**9)
    pages = ReadAhead(RUNTIME, feed, None, lambda: 1, depth=1)
    pages.next()
    pages.close()
    read = len(feed.reads)
    threading.Event().wait(0.05)
    assert len(feed.reads) == read


class Asked:
    """A feed that can be asked ahead: it says in which order it was asked and read."""

    can_ask = True

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.said: list[str] = []
        self._fails_at = fails_at

    def ask(self, after: object, limit: int) -> None:
        self.said.append(f"ask {after}")

    def read(self, after: object, limit: int) -> Page:
        self.said.append(f"read {after}")
        first = 0 if after is None else int(str(after))
        if first == self._fails_at:
            raise OSError("gone")
        return Page([first + 1], lambda index: first + 1, is_last=first == 3)

    def close(self) -> None: ...


def test_what_was_asked_for_is_taken_when_there_is_time_and_handed_out_once() -> None:
    feed = Asked()
    pages = ReadAhead(ThreadedRuntime(), feed, None, lambda: 1, depth=1)
    pages.take()  # nothing was asked for yet
    assert pages.next().items == [1]
    pages.take()
    pages.take()  # the one that was asked for meanwhile is not taken before this one is handed out
    assert feed.said == ["read None", "ask 1", "read 1", "ask 2"]
    assert [pages.next().items for _ in range(3)] == [[2], [3], [4]]
    pages.take()
    assert feed.said[-1] == "read 3"  # the last page was the last


def test_what_goes_wrong_while_a_page_is_taken_is_raised_when_it_is_wanted() -> None:
    pages = ReadAhead(ThreadedRuntime(), Asked(fails_at=1), None, lambda: 1, depth=1)
    assert pages.next().items == [1]
    pages.take()
    with pytest.raises(OSError, match="gone"):
        pages.next()
