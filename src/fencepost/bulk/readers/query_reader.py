"""What all readers of queries have in common: slices, estimates, and checks before they begin."""

from __future__ import annotations

from typing import Any

from fencepost.bulk.reader import Slice, Surroundings
from fencepost.bulk.readers.page_feed import PageFeed
from fencepost.bulk.readers.page_query import PageQuery
from fencepost.bulk.readers.part_checks import refuse_parts_that_miss
from fencepost.bulk.readers.plans import estimated_rows, warn_of_slow_pages
from fencepost.bulk.readers.ranges import hashed_slices, ranked_slices, sampled_slices
from fencepost.bulk.readers.row_shape import label_of
from fencepost.core.identity import fingerprint


class QueryReader:
    """A reader of rows in the order of a key. `pages` is the query that returns its keys, `query` the same as given."""

    name: str  # of the function that makes it
    needs_source = True

    def __init__(self, pages: PageQuery, query: str) -> None:
        self.pages = pages
        self.query = query.strip()
        self.keys = pages.keys
        self.is_hashed = "part" in pages.names

    @property
    def shape(self) -> str:
        """Depends on the query for the keys, without its white space, and on the key."""
        return fingerprint([self.name, " ".join(self.query.split()), self.keys])

    def slices(self, count: int, surroundings: Surroundings) -> list[Slice]:
        """Divide by ranges of the key, or by ``:part`` if the query uses it."""
        feed = PageFeed(self.pages, {}, surroundings)
        try:
            if self.is_hashed:
                refuse_parts_that_miss(feed, count, self.keys)
                return hashed_slices(count)
            ends = [*feed.keys_between(None, None, 1), *feed.keys_between(None, None, 1, descending=True)]
            if not ends:
                return [{"expected": 0}]
            if all(type(each) is int for each in ends):
                return sampled_slices(feed.keys_between, count)
            if count == 1:
                return [_whole(self.expected({}, surroundings))]
            return ranked_slices(self.pages, feed.fetch, count)
        finally:
            feed.close()

    def expected(self, part: Slice, surroundings: Surroundings) -> int | None:
        """Return the estimate from planning the slices, or else from the database's planner."""
        if "expected" in part or self.is_hashed:
            return part.get("expected")
        return estimated_rows(self.pages.all(), surroundings)

    def check(self, surroundings: Surroundings) -> None:
        """Refuse rows with NULL in their key; warn of a plan that reads the whole table for every page."""
        if set(self.pages.names) - {"part", "parts", *surroundings.values}:
            return  # the listed partitions have values that are not known here
        feed = PageFeed(self.pages, {}, surroundings)
        try:
            feed.refuse_null_keys()
            first = feed.keys_between(None, None, 1)
        finally:
            feed.close()
        if first:
            self._warn(first[0], surroundings)

    def _warn(self, first: Any, surroundings: Surroundings) -> None:
        warn_of_slow_pages(self.pages, first, surroundings)

    def label(self, item: Any) -> str:
        """Return the key of a row."""
        return label_of(self.keys, item)


def _whole(expected: int | None) -> Slice:
    return {} if expected is None else {"expected": expected}
