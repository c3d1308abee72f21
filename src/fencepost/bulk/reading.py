"""Connections to read from: one interface to all kinds of sources that fetches rows.

Each statement is a transaction of its own, so a reader that works for hours holds no snapshot. Rows are plain tuples;
the column names are separate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from fencepost.bulk.asking import asking_of
from fencepost.bulk.sql import spelled
from fencepost.errors import BrokenInput, InvalidBulk
from fencepost.fence.target import described
from fencepost.sql.cursors import DRIVERS, plain_cursor

_KINDS = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}


_DRIVERS = {"postgresql": "postgresql+psycopg://…", "mysql": "mysql+pymysql://…", "sqlite": "sqlite:///…"}


class Rows(NamedTuple):
    """The result of a query."""

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
        self._asking = asking_of(self._cursor) if self.kind == "postgresql" else None

    @property
    def can_ask(self) -> bool:
        """Whether a query may be sent before its rows are needed."""
        return self._asking is not None

    def ask(self, sql: str, values: Mapping[str, Any]) -> None:
        """Send a query whose rows are fetched later. Errors are raised then."""
        if self._asking is None or self._is_broken:
            return
        with suppress(Exception):
            self._asking.ask(*self._spelled(sql, values))

    def fetch(self, sql: str, values: Mapping[str, Any]) -> Rows:
        """Execute a query with ``:names``, and return all its rows."""
        text, parameters = self._spelled(sql, values)
        try:
            cursor = self._executed(text, parameters)
            rows = cursor.fetchall()
        except BaseException:
            self._is_broken = True
            raise
        names = tuple(column[0] for column in cursor.description)
        return Rows(names, rows if isinstance(rows, list) else list(rows))

    def _executed(self, text: str, parameters: Any) -> Any:
        if self._asking is not None and self._asking.has_begun:
            return self._asking.answer(text, parameters)
        self._cursor.execute(text, parameters)
        return self._cursor

    def _spelled(self, sql: str, values: Mapping[str, Any]) -> tuple[str, Any]:
        statement = spelled(sql, self.kind)
        try:
            return statement.sql, statement.values(values)
        except KeyError as error:
            raise BrokenInput(
                f"the query uses :{error.args[0]}, which is not a parameter of this run; it has {_named(values)}. Add "
                "a parameter with that name to the job, or, for a colon that does not begin a name, write \\:"
            ) from None

    def close(self) -> None:
        """Return the connection to its pool. Discard one that has failed, because its state is unknown."""
        try:
            if self._is_broken:
                self._abandon()
            else:
                self._end_asking()
                self._cursor.close()
        finally:
            self._connection.close()

    def _end_asking(self) -> None:
        try:
            if self._asking is not None:
                self._asking.close()
        except Exception:  # noqa: BLE001 - the result is not needed any more
            self._abandon()

    def _abandon(self) -> None:
        if self._asking is not None:
            self._asking.abandon()
        self._connection.invalidate()

    def _open(self) -> Any:
        raw = self._connection.connection.driver_connection
        return plain_cursor(raw, DRIVERS[self.kind])


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f":{name}" for name in values) or "none"


def kind_of(engine: Any) -> str:
    """Return the kind of an engine's database, or refuse the engine."""
    name = getattr(getattr(engine, "dialect", None), "name", None)
    driver = getattr(getattr(engine, "dialect", None), "driver", None)
    if not hasattr(engine, "connect") or name not in _KINDS:
        raise InvalidBulk(f"{described(engine)} cannot be read from; pass a SQLAlchemy engine, or a URL")
    if driver not in ("psycopg", "pymysql", "pysqlite") or engine.dialect.is_async:
        raise InvalidBulk(
            f"an engine with the driver {driver!r} cannot be read from; use psycopg, pymysql or pysqlite, and no async "
            f"engine: create_engine({_DRIVERS[_KINDS[name]]!r})"
        )
    return _KINDS[name]


class Places:
    """Returns the engine for a source or target: an engine, a URL, or a function that returns an engine.

    An engine from a URL or a function is kept for as long as the process lives.
    """

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}

    def engine(self, given: Any, fallback: Callable[[], Any]) -> Any:
        """Return the engine for `given`; for None, call `fallback`."""
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
    from sqlalchemy import create_engine  # noqa: PLC0415 - needed only for URLs

    from fencepost.ledger.urls import LedgerUrl  # noqa: PLC0415 - as above

    return create_engine(LedgerUrl.parse(url).sqlalchemy())
