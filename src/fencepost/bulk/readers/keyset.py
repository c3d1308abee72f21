"""Reads the rows of a query in the order of a unique key, page by page, never with OFFSET.

::

    keyset("SELECT id, amount FROM orders WHERE settled IS NULL AND id > :after ORDER BY id LIMIT :limit", key="id")
    keyset("SELECT region, id, amount FROM orders "
           "WHERE (region, id) > (:after_region, :after_id) ORDER BY region, id LIMIT :limit", key=("region", "id"))

Each page costs the same, however far the job has come, and concurrent inserts do not shift pages.

The query must contain the position (``id > :after``), the order and the limit, because without one of them rows would
be missed or read twice. Partitions add their bounds to the comparison.

**Detected** before anything of the page is written: a key that occurs twice (also if only the database considers two
strings equal, as with ``a`` and ``A``), a key that is NULL, and one that changes when it is read back and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.bulk.reader import Slice, Surroundings
from fencepost.bulk.readers.page_feed import PageFeed
from fencepost.bulk.readers.page_query import PageQuery
from fencepost.bulk.readers.query_reader import QueryReader
from fencepost.bulk.readers.row_shape import row_type

__all__ = ["Keyset", "keyset", "row_type"]


def keyset(query: str, *, key: str | Sequence[str]) -> Keyset:
    """Read the rows of `query` in the order of `key`: one column, or several that are unique together.

    The query must use ``:after`` and ``:limit``, and may use the run's parameters, ``:window_start`` and
    ``:window_end``. If it uses ``:part`` and ``:parts``, these define the partitions instead of ranges of the key.
    """
    keys = tuple(key) if isinstance(key, list | tuple) else (key,)
    return Keyset(query, keys)


class Keyset(QueryReader):
    """A query that is read page by page."""

    name = "keyset"

    def __init__(self, query: str, keys: tuple[Any, ...]) -> None:
        super().__init__(PageQuery.of(query, keys), query)

    def __repr__(self) -> str:
        return f"keyset({self.query!r}, key={self.keys if len(self.keys) > 1 else self.keys[0]!r})"

    def open(self, part: Slice, surroundings: Surroundings) -> PageFeed:
        """Begin to read a slice."""
        return PageFeed(self.pages, part, surroundings)
