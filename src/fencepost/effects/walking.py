"""Reads a table of effects in the order of its primary key, and removes rows from it, page by page.

Every statement is limited to one page and uses the primary key, so no other index is needed, and transactions are
short. Rows that are inserted meanwhile may be seen or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement

    from fencepost.ledger.database import Database
    from fencepost.ledger.dialects import Row


def walk(
    database: Database, columns: tuple[Column[Any], ...], *, after: Any, upto: Any = None, page: int
) -> Iterator[Row]:
    """Yield these columns of every row, ordered by the first one: after `after`, and before `upto` if given."""
    key, last = columns[0], after
    query = select(*columns).order_by(key).limit(page)
    query = query if upto is None else query.where(key < upto)
    while rows := _read(database, query.where(key > last)):
        yield from rows
        last = rows[-1][0]


def _read(database: Database, query: Any) -> list[Row]:
    return database.read(lambda cursor: database.rows(cursor, query))


def remove(
    database: Database, key: Column[Any], values: Iterable[Any], *, still: ColumnElement[bool], batch: int
) -> int:
    """Delete rows by their keys, in this order, one batch per transaction, if they meet the condition `still`."""
    left, removed = iter(values), 0
    while some := list(islice(left, batch)):
        statement = delete(key.table).where(key.in_(some), still)
        removed += database.write(lambda cursor, statement=statement: database.change(cursor, statement))  # type: ignore[misc]
    return removed
