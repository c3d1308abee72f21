"""A compare-and-set of one row that is executed at the very end of a fenced transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class FinalUpdate(NamedTuple):
    """An UPDATE that must find one row. Otherwise the transaction is rolled back and `missed` is raised.

    It is executed after everything else, right before the fence is compared; where that saves a round trip, together
    with it. `sql` has ``%s`` for each of `values`, which are strings and integers.

    `meanwhile` is called while the database commits, if the driver can wait for the commit in this way. It must not
    raise, and must not use this connection.
    """

    sql: str
    values: tuple[Any, ...]
    missed: Exception
    meanwhile: Callable[[], None] | None = None
