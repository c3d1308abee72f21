"""Rows of a query in the order of a unique key, page after page: never by offset.

::

    keyset("SELECT id, amount FROM orders WHERE settled IS NULL AND id > :after ORDER BY id LIMIT :limit", key="id")
    keyset("SELECT region, id, amount FROM orders "
           "WHERE (region, id) > (:after_region, :after_id) ORDER BY region, id LIMIT :limit", key=("region", "id"))

Each page costs the same, however far the job has come, and rows that were written meanwhile shift nothing.

The query says where to go on (``id > :after``), in which order, and how many: all three are asked for, because without
one of them rows would be missed or read twice. Partitions get their bounds by adding to the comparison.

**Noticed** before anything of the page is written: a key that occurs twice (also where only the database takes two
texts for one, as in ``a`` and ``A``), that is NULL, or that does not compare as it is read back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.bulk.reader import Slice, Surroundings
from fencepost.bulk.readers.page_feed import PageFeed
from fencepost.bulk.readers.page_query import PageQuery
from fencepost.bulk.readers.query_reader import QueryReader
from fencepost.bulk.readers.row_shape import row_type
from fencepost.core.identity import fingerprint

__all__ = ["Keyset", "keyset", "row_type"]


def keyset(query: str, *, key: str | Sequence[str]) -> Keyset:
    """Read the rows of `query` in the order of `key`: one column, or several that are unique together.

    The query names ``:after`` and ``:limit``, and may name the run's parameters, ``:window_start`` and ``:window_end``;
    with ``:part`` and ``:parts`` in it, partitions are told by them instead of by ranges of the key.
    """
    keys = tuple(key) if isinstance(key, list | tuple) else (key,)
    return Keyset(query, keys)


class Keyset(QueryReader):
    """A query that is read page by page."""

    def __init__(self, query: str, keys: tuple[Any, ...]) -> None:
        super().__init__(PageQuery.of(query, keys))
        self.query = query.strip()

    def __repr__(self) -> str:
        return f"keyset({self.query!r}, key={self.keys if len(self.keys) > 1 else self.keys[0]!r})"

    @property
    def shape(self) -> str:
        """The query without regard to its spacing, and its key."""
        return fingerprint(["keyset", " ".join(self.query.split()), self.keys])

    def open(self, part: Slice, surroundings: Surroundings) -> PageFeed:
        """Begin to read a slice."""
        return PageFeed(self.pages, part, surroundings)
