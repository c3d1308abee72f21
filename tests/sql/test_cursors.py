"""Our cursors on connections that their owners have set up in their own way."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from fencepost.sql.cursors import plain_cursor


class Shell(sqlite3.Connection):
    """Is around another connection, and has never been one itself."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self.inner = inner
        self.text_factory = str

    def cursor(self, *_: Any) -> Any:
        return self.inner.cursor()

    def close(self) -> None:
        self.inner.close()


@pytest.fixture(params=["bytes", "rows", "a shell"])
def file(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    raw = sqlite3.connect(":memory:")
    with closing(Shell(raw) if request.param == "a shell" else raw) as raw:
        if request.param == "bytes":
            raw.text_factory = bytes
        if request.param == "rows":
            raw.row_factory = lambda *_: "a row of the owner's"
        yield raw


def test_sqlite_gives_tuples_and_texts(file: sqlite3.Connection) -> None:
    before = file.text_factory
    with closing(plain_cursor(file, "sqlite3")) as cursor:
        cursor.execute("SELECT 'a', 1 UNION SELECT ?, 2", ("b",))
        assert (cursor.fetchone(), next(cursor)) == (("a", 1), ("b", 2))
        cursor.execute("SELECT 'a' UNION SELECT 'b'")
        assert (cursor.fetchmany(1), cursor.fetchall()) == ([("a",)], [("b",)])
    assert file.text_factory is before


@pytest.mark.parametrize("kind", [psycopg.Cursor, psycopg.RawCursor, psycopg.ClientCursor])
def test_psycopg_takes_our_marks_and_gives_tuples(postgres: Any, kind: Any) -> None:
    options = {"cursor_factory": kind, "row_factory": dict_row}
    with psycopg.connect(postgres.url, **options) as raw, plain_cursor(raw, "psycopg") as cursor:
        cursor.execute("SELECT %s::text, 1", ("a",))
        assert cursor.fetchall() == [("a", 1)]
        assert isinstance(cursor, psycopg.ClientCursor) == (kind is psycopg.ClientCursor)
