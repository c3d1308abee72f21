"""Reads with a reader as a partition does: page by page, from positions that went through JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import cycle
from typing import Any

import pytest
from sqlalchemy import text

from fencepost import App
from fencepost.bulk.reader import WHOLE, Page, Slice, Surroundings
from fencepost.errors import BrokenInput
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()


def surroundings(**values: Any) -> Surroundings:
    return Surroundings(RUNTIME, values=values)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def pages(reader: Any, sizes: Sequence[int] = (7,), *, part: Slice = WHOLE, after: Any = None) -> Iterator[Page]:
    """Yield pages of one feed."""
    feed = reader.open(through_json(part), surroundings())
    try:
        for size in cycle(sizes):
            page = feed.read(after, size)
            if page.items:
                after = through_json(page.position_after(len(page.items) - 1))
                yield page
            if page.is_last or not page.items:
                return
    finally:
        feed.close()


def items(reader: Any, sizes: Sequence[int] = (7,), *, part: Slice = WHOLE, after: Any = None) -> list[Any]:
    return [item for page in pages(reader, sizes, part=part, after=after) for item in page.items]


def until_broken(
    reader: Any, sizes: Sequence[int] = (7,), *, part: Slice = WHOLE, after: Any = None
) -> tuple[list[Any], BrokenInput]:
    """Read until it cannot go on; return what was read, and what was told then."""
    read: list[Any] = []
    with pytest.raises(BrokenInput) as told:
        for page in pages(reader, sizes, part=part, after=after):
            read += page.items
    return read, told.value


def items_by_feeds(reader: Any, sizes: Sequence[int], *, part: Slice = WHOLE) -> list[Any]:
    """Read each page by a feed of its own, as one who is killed after each of them."""
    read, after = [], None
    for size in cycle(sizes):
        page = next(pages(reader, [size], part=part, after=after), None)
        if page is None:
            return read
        read += page.items
        after = through_json(page.position_after(len(page.items) - 1))
    return read


def positions(reader: Any, *, part: Slice = WHOLE) -> list[Any]:
    """Return every position that a checkpoint could have: the beginning, and after each item."""
    found = [page.position_after(index) for page in pages(reader, part=part) for index in range(len(page.items))]
    return [None, *map(through_json, found)]


def check_resuming(reader: Any, expected: Sequence[Any], sizes: Sequence[int]) -> None:
    """In pages of any sizes, and from any position: what follows is read, once, in order."""
    assert items(reader, sizes) == list(expected)
    assert items_by_feeds(reader, sizes) == list(expected)
    for count, position in enumerate(positions(reader)):
        assert items(reader, sizes, after=position) == list(expected[count:])


def check_slices(reader: Any, expected: Sequence[Any], count: int) -> list[Slice]:
    """The slices are disjoint, and all of it; each can be resumed anywhere."""
    slices = [through_json(each) for each in reader.slices(count, surroundings())]
    assert 1 <= len(slices) <= count
    read = [items(reader, part=part) for part in slices]
    assert sorted(plain(item) for each in read for item in each) == sorted(map(plain, expected))
    for part, whole in zip(slices, read, strict=True):
        for done, position in enumerate(positions(reader, part=part)):
            assert items(reader, part=part, after=position) == whole[done:]
    return slices


def plain(item: Any) -> str:
    return repr(tuple(item) if isinstance(item, tuple) else item)


class Importing:
    """A bulk job that writes what `row` makes of each item into the table `landed`, in the ledger's own database."""

    def __init__(self, url: str, reader: Any, row: Callable[[Any], tuple[int, str]], **options: Any) -> None:
        self.app = App(url, ttl="6s")
        self._url = url.removeprefix("sqlite:///")
        with self._connected() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS landed (id INTEGER PRIMARY KEY, name TEXT)")

        @self.app.bulk(read=reader, process=row, name="import", **{"chunk": 7, **options})
        def land(tx: Any, rows: list[tuple[int, str]]) -> None:
            tx.execute(text("INSERT INTO landed VALUES (:id, :name)"), [{"id": i, "name": n} for i, n in rows])

        self._job = land

    def run(self, **params: Any) -> Any:
        """Have it done from the beginning, and return its run."""
        return self._ended(self._job.enqueue(**params).run_id)

    def restart(self, run: Any) -> Any:
        """Have a run that failed done again, from where it was."""
        return self._ended(self.app.operations.retry(run.id, by="test", reason="mended"))

    def landed(self) -> list[tuple[int, str]]:
        with self._connected() as connection:
            return connection.execute("SELECT id, name FROM landed ORDER BY id").fetchall()

    def letters(self) -> list[str]:
        with self._connected() as connection:
            return [key for (key,) in connection.execute("SELECT item_key FROM fencepost_dead_letter ORDER BY id")]

    def close(self) -> None:
        self.app.close()

    def _ended(self, run_id: int) -> Any:
        with self.app.running():
            until(
                lambda: self.app.operations.run(run_id).state in ("succeeded", "dead", "skipped"),
                30,
                what="the run has ended",
            )
        return self.app.operations.run(run_id)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._url)) as connection, connection:
            yield connection
