"""Opens a database that receives effects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.ledger.database import Database


@contextmanager
def effects_at(url: str) -> Iterator[Database]:
    """Open a database of effects, and close it at the end of the block."""
    from fencepost.effects.installing import open_database  # noqa: PLC0415 - SQLAlchemy takes its time to load
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    database = open_database(url, ThreadedRuntime())
    try:
        yield database
    finally:
        database.close()
