"""Plain cursors on users' own connections: rows are tuples, whatever the settings of the connection are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "sqlite": "sqlite3"}
"""The driver for each kind of database."""


def plain_cursor(raw: Any, driver: str) -> Any:
    """Return a new cursor on `raw`, a connection of `driver`: psycopg, pymysql or sqlite3.

    It accepts the driver's usual parameter marks and returns tuples with texts as `str`, whatever row, text or (on
    psycopg) cursor classes the connection uses. Registered type adapters are not changed.
    """
    match driver:
        case "psycopg":
            from psycopg import Cursor, RawCursor  # noqa: PLC0415 - installed, because the connection uses it
            from psycopg.rows import tuple_row  # noqa: PLC0415

            cursor = raw.cursor(row_factory=tuple_row)  # created by the connection, which may refuse
            return Cursor(raw, row_factory=tuple_row) if isinstance(cursor, RawCursor) else cursor
        case "pymysql":
            from pymysql.cursors import Cursor as MysqlCursor  # noqa: PLC0415 - as above

            return raw.cursor(MysqlCursor)
        case _:
            # Also created by the connection, because its class may wrap another connection.
            cursor = raw.cursor() if raw.text_factory is str else raw.cursor(_TextCursor)
            cursor.row_factory = None
            return cursor


class _TextCursor(sqlite3.Cursor):
    """Reads texts as `str`. The text factory can only be set for a whole connection, so it is set during each call."""

    def execute(self, *words: Any) -> Any:
        with _texts(self.connection):
            return super().execute(*words)

    def fetchone(self) -> Any:
        with _texts(self.connection):
            return super().fetchone()

    def fetchmany(self, *words: Any) -> Any:
        with _texts(self.connection):
            return super().fetchmany(*words)

    def fetchall(self) -> Any:
        with _texts(self.connection):
            return super().fetchall()

    def __next__(self) -> Any:
        with _texts(self.connection):
            return super().__next__()


@contextmanager
def _texts(connection: sqlite3.Connection) -> Iterator[None]:
    before, connection.text_factory = connection.text_factory, str
    try:
        yield
    finally:
        connection.text_factory = before


def has_pipelines() -> bool:
    """Whether the libpq that psycopg uses supports pipelines."""
    from psycopg import Pipeline  # noqa: PLC0415 - the driver may be missing

    return bool(Pipeline.is_supported())
