"""A change that belongs to the very end of a fenced transaction: one row, moved on from what it was believed to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class FinalUpdate(NamedTuple):
    """An UPDATE that must find one row, else the transaction is rolled back and `missed` is raised.

    It is executed when everything else has been, right before the fence is compared; where that saves a round trip,
    together with it. `sql` marks `values` with ``%s``; these are texts and whole numbers.

    `meanwhile` may be called while the database commits, where it can be waited for like that. It raises nothing, and
    leaves this connection alone.
    """

    sql: str
    values: tuple[Any, ...]
    missed: Exception
    meanwhile: Callable[[], None] | None = None
