"""Connections to read from: whatever the user names as a source, as one thing that fetches rows.

Each statement is a transaction of its own: a reader that works for hours holds no snapshot. Rows come as plain tuples,
with the names of their columns beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fencepost.bulk.sql import spelled
from fencepost.errors import BrokenInput, InvalidBulk
from fencepost.fence.target import described

_KINDS = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}


_DRIVERS = {"postgresql": "postgresql+psycopg://…", "mysql": "mysql+pymysql://…", "sqlite": "sqlite:///…"}


class Rows(NamedTuple):
    """What a query gave."""

    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class Reading:
    """A connection to read from. `kind` is postgresql, mysql or sqlite."""

    def __init__(self, engine: Any) -> None:
        self.kind = kind_of(engine)
        self._is_broken = False
        self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            self._cursor = self._open()
        except BaseException:
            self._connection.close()
            raise

    def fetch(self, sql: str, values: Mapping[str, Any]) -> Rows:
        """Execute a query with ``:names``, and return all of its rows."""
        statement = spelled(sql, self.kind)
        try:
            parameters = statement.values(values)
        except KeyError as error:
            raise BrokenInput(
                f"the query names :{error.args[0]}, which is no parameter of this run; it has {_told(values)}. Give "
                "the job a parameter of that name, or, for a colon that begins no name, write \\:"
            ) from None
        cursor = self._cursor
        try:
            cursor.execute(statement.sql, parameters)
            rows = cursor.fetchall()
        except BaseException:
            self._is_broken = True
            raise
        names = tuple(column[0] for column in cursor.description)
        return Rows(names, rows if isinstance(rows, list) else list(rows))

    def close(self) -> None:
        """Give the connection back; one that has failed is let go, because nobody knows what state it is in."""
        try:
            if self._is_broken:
                self._connection.invalidate()
            else:
                self._cursor.close()
        finally:
            self._connection.close()

    def _open(self) -> Any:
        raw = self._connection.connection.driver_connection
        if self.kind == "postgresql":
            from psycopg.rows import tuple_row  # noqa: PLC0415 - it is there: the engine's driver

            return raw.cursor(row_factory=tuple_row)
        if self.kind == "mysql":
            from pymysql.cursors import Cursor  # noqa: PLC0415 - as above

            return raw.cursor(Cursor)
        cursor = raw.cursor()
        cursor.row_factory = None
        return cursor


def _told(values: Mapping[str, Any]) -> str:
    return ", ".join(f":{name}" for name in values) or "none"


def kind_of(engine: Any) -> str:
    """Return which kind of database an engine leads to, or refuse it."""
    name = getattr(getattr(engine, "dialect", None), "name", None)
    driver = getattr(getattr(engine, "dialect", None), "driver", None)
    if not hasattr(engine, "connect") or name not in _KINDS:
        raise InvalidBulk(f"{described(engine)} cannot be read from; give a SQLAlchemy engine, or its URL")
    if driver not in ("psycopg", "pymysql", "pysqlite") or engine.dialect.is_async:
        raise InvalidBulk(
            f"an engine with the driver {driver!r} cannot be read from; make one with psycopg, pymysql or pysqlite, "
            f"that is not async: create_engine({_DRIVERS[_KINDS[name]]!r})"
        )
    return _KINDS[name]


class Places:
    """Sources and targets as users name them, made into engines: an engine, its URL, or a function that returns one.

    An engine that was made of a URL, or by a function, is kept for as long as the process lives.
    """

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}

    def engine(self, given: Any, fallback: Callable[[], Any]) -> Any:
        """Return the engine for what was given; for None, the one of the ledger's own database."""
        if given is None:
            return fallback()
        if isinstance(given, str):
            return self._kept(given, lambda: _engine_of_url(given))
        if callable(given) and not hasattr(given, "connect"):
            return self._kept(given, given)
        return given

    def _kept(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def _engine_of_url(url: str) -> Any:
    from sqlalchemy import create_engine  # noqa: PLC0415 - only who names a URL needs it

    from fencepost.ledger.urls import LedgerUrl  # noqa: PLC0415 - as above

    return create_engine(LedgerUrl.parse(url).sqlalchemy())
