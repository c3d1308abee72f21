"""Writes each item with a statement, through the driver's `executemany`. Works on every database.

::

    write = executemany("settled", ("id", "amount"))
    write = executemany("UPDATE orders SET settled = :day WHERE id = :id")

psycopg sends the statements of a chunk without waiting for each reply, PyMySQL combines them into one INSERT where
possible, and SQLite needs no round trips. On PostgreSQL, ``unnest(…)`` and ``copy(…)`` are two and five times as fast.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

from fencepost.bulk.sql import changed, names_in
from fencepost.bulk.writers.table import Table, driver_connection, explained, kind_of
from fencepost.bulk.writers.values import Rows, values_of
from fencepost.errors import InvalidBulk
from fencepost.fence.target import connection_of, family_of

_MARK = re.compile(r"(?<![:\w\\]):([A-Za-z_]\w*)")
_STATEMENT = re.compile(r"\s*(insert|update|delete|replace|merge|with|call)\s", re.IGNORECASE)
_SIGNS = {"postgresql": '"', "mysql": "`", "sqlite": '"'}
_QMARK, _FORMAT = "?", "%s"


def executemany(statement: str, columns: Sequence[str] | None = None) -> ExecuteMany:
    """Write items with one statement each: SQL with ``:names`` for their values, or a table and its columns.

    ``executemany("INSERT INTO settled (id, amount) VALUES (:id, :amount)")`` takes items with `id` and `amount`, or
    sequences of two values in the order in which the names first occur in the statement.
    """
    if columns is not None:
        return ExecuteMany(OfTable(Table.of(statement, columns, "executemany")))
    if _STATEMENT.match(str(statement)) is None:
        example = "'INSERT INTO settled (id, amount) VALUES (:id, :amount)'"
        raise InvalidBulk(
            f"executemany({statement!r}): pass a table and its columns, or a statement with names for the values of "
            f"an item, as in {example}"
        )
    if not names_in(statement):
        raise InvalidBulk(
            f"executemany({statement!r}): the statement uses no values of the items; write their names, as in "
            "VALUES (:id, :amount)"
        )
    return ExecuteMany(OfStatement(statement))


class MarkedStatement(NamedTuple):
    """A statement for a driver. `places` is the index of the value for each placeholder; None if they are in order."""

    sql: str
    places: tuple[int, ...] | None


class OfTable:
    """An INSERT into the columns of a table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.names = table.columns
        self.shown = str(table)

    def spelled(self, kind: str, mark: str) -> MarkedStatement:
        """Return the statement for a kind of database and a driver's placeholder."""
        sign, table = _SIGNS[kind], self.table
        marks = ", ".join([mark] * len(table.columns))
        into = f"INSERT INTO {table.quoted(sign)} ({table.quoted_columns(sign)})"
        return MarkedStatement(f"{into} VALUES ({marks})", None)


class OfStatement:
    """A statement with names for the values of an item."""

    table = None

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.names = names_in(sql)
        self.shown = repr(sql)

    def spelled(self, kind: str, mark: str) -> MarkedStatement:
        """Return the statement with a driver's placeholder."""
        places: list[int] = []

        def replaced(text: str) -> str:
            places.extend(self.names.index(name) for name in _MARK.findall(text))
            return _MARK.sub(mark, text)

        made = changed(self.sql.replace("%", "%%") if mark == _FORMAT else self.sql, replaced)
        return MarkedStatement(made, None if places == list(range(len(self.names))) else tuple(places))


class ExecuteMany:
    """Writes chunks with a statement for each item."""

    def __init__(self, what: OfTable | OfStatement) -> None:
        self._what = what
        self._spelled: dict[tuple[str, str], MarkedStatement] = {}

    def __repr__(self) -> str:
        return f"executemany({self._what.shown})"

    def __call__(self, tx: Any, items: Sequence[Any]) -> None:
        """Write items within a transaction."""
        if not items:
            return
        what, kind, mark = self._what, kind_of(tx), _mark_of(tx)
        if (kind, mark) not in self._spelled:
            self._spelled[kind, mark] = what.spelled(kind, mark)
        sql, places = self._spelled[kind, mark]
        rows = _placed(values_of(items, what.names), places)
        with explained(what.table, "executemany"), closing(driver_connection(tx).cursor()) as cursor:
            cursor.executemany(sql, rows)


def _placed(rows: Rows, places: tuple[int, ...] | None) -> Rows:
    return rows if places is None else [tuple([row[place] for place in places]) for row in rows]


def _mark_of(tx: Any) -> str:
    """Return the placeholder of a transaction's driver."""
    if family_of(tx) == "sqlalchemy":
        style = connection_of(tx).dialect.paramstyle
        if style in ("qmark", "format", "pyformat"):
            return _QMARK if style == "qmark" else _FORMAT
        raise InvalidBulk(f"executemany(…) does not support the paramstyle {style!r}; use a write() of your own")
    return _QMARK if family_of(driver_connection(tx)) == "sqlite3" else _FORMAT
