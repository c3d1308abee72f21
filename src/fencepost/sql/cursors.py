"""Plain cursors on connections whose settings are the user's own: rows are tuples, whatever the connection says."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "sqlite": "sqlite3"}
"""The driver that is used for each kind of database."""


def plain_cursor(raw: Any, driver: str) -> Any:
    """Return a new cursor of `raw`, a connection of `driver`: psycopg, pymysql or sqlite3.

    It takes our marks and gives tuples with texts as `str`, whatever rows and texts the connection was set to, and on
    psycopg whatever cursors. Types that were registered to be read otherwise are not looked at.
    """
    match driver:
        case "psycopg":
            from psycopg import Cursor, RawCursor  # noqa: PLC0415 - it is there: the connection is of it
            from psycopg.rows import tuple_row  # noqa: PLC0415

            cursor = raw.cursor(row_factory=tuple_row)  # asked for, not made: the connection may refuse
            return Cursor(raw, row_factory=tuple_row) if isinstance(cursor, RawCursor) else cursor
        case "pymysql":
            from pymysql.cursors import Cursor as MysqlCursor  # noqa: PLC0415 - as above

            return raw.cursor(MysqlCursor)
        case _:
            # Asked for as well: a class of connections may be a shell around another connection.
            cursor = raw.cursor() if raw.text_factory is str else raw.cursor(_TextCursor)
            cursor.row_factory = None
            return cursor


class _TextCursor(sqlite3.Cursor):
    """Reads texts as `str` on a connection that reads them otherwise: that can only be set for the connection."""

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
    """Whether the libpq that psycopg uses is new enough to be asked ahead."""
    from psycopg import Pipeline  # noqa: PLC0415 - the driver may be missing

    return bool(Pipeline.is_supported())
