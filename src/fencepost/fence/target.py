"""One interface to all kinds of user connections, to execute our few statements in the user's own transaction.

Supported are connections of psycopg, PyMySQL and sqlite3, connections and sessions of SQLAlchemy, and Django's
connections.

**Promises.** A target never begins, commits or rolls back, and opens no connection of its own. Errors are those that
the user's own statements would get: the driver's, SQLAlchemy's or Django's.

**Our SQL** has ``%s`` as placeholder and no other percent sign. Each driver gets the placeholders that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fencepost.sql.cursors import plain_cursor
from fencepost.sql.spelling import SPELLING

_DRIVERS = {"psycopg": "postgresql", "pymysql": "mysql", "sqlite3": "sqlite"}
_KINDS = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}
TAKEN = (
    "connections of psycopg, PyMySQL and sqlite3, connections and sessions of SQLAlchemy, and Django's connections, "
    "to PostgreSQL, MySQL, MariaDB or SQLite; none of them async"
)
_FILE_CLOCK = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a statement: its rows, and how many it changed or found.

    On MySQL, some drivers count the rows that were found and others those that were changed. So an update that leaves
    a row unchanged may count as 1 or as 0.
    """

    rows: list[tuple[Any, ...]]
    count: int


class Target:
    """A connection of the user's. `given` is the object that was passed in, `kind` is postgresql, mysql or sqlite."""

    __slots__ = ("_perform", "_wall_us", "given", "kind")

    def __init__(
        self,
        given: Any,
        kind: str,
        perform: Callable[[str, Sequence[Any]], Answer],
        *,
        wall_us: Callable[[], int] | None = None,
    ) -> None:
        self.given = given
        self.kind = kind
        self._perform = perform
        self._wall_us = wall_us

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Answer:
        """Execute one statement, with ``%s`` for each of `parameters`, in the current transaction."""
        return self._perform(sql, parameters)

    def now_us(self) -> int:
        """Return the time of the database's clock, or of this machine's clock on SQLite."""
        clock = SPELLING[self.kind].now_us
        if clock is None and self._wall_us is not None:
            return self._wall_us()
        return int(self.execute(f"SELECT {clock or _FILE_CLOCK}").rows[0][0])

    def __repr__(self) -> str:
        return f"<Target {self.kind}: {described(self.given)}>"


def target_of(source: Any, *, wall_us: Callable[[], int] | None = None) -> Target:
    """Return `source` as a target. Raise `TypeError`, with the supported types, if it is none of them.

    `wall_us` replaces the machine's clock where the database has none (SQLite).
    """
    if isinstance(source, Target):
        return source
    refuse_async(source)
    family = family_of(source)
    if family == "sqlalchemy":
        return _of_sqlalchemy(source, wall_us)
    if family == "django":
        return Target(source, _kind(source, source.vendor), _django(source), wall_us=wall_us)
    if family in _DRIVERS and hasattr(source, "commit"):
        return Target(source, _DRIVERS[family], _dbapi(source, family), wall_us=wall_us)
    raise not_taken(source)


def family_of(source: Any) -> str | None:
    """Return the library of the object: sqlalchemy, django, psycopg, pymysql or sqlite3; None if it is another."""
    if is_django(source):
        return "django"
    return next((name for name in _packages(source) if name in _DRIVERS or name == "sqlalchemy"), None)


def is_django(source: Any) -> bool:
    """Whether it is one of Django's connections, or the proxy ``django.db.connection``."""
    of_django = "django" in _packages(source)
    return of_django and hasattr(source, "vendor") and hasattr(source, "validate_no_atomic_block")


def _packages(source: Any) -> tuple[str, ...]:
    """Return the packages of the object's type and its base types, its own first."""
    kind: Any = type(source)
    return _packages_of(kind)


@lru_cache(maxsize=256)
def _packages_of(kind: type) -> tuple[str, ...]:
    return tuple(each.__module__.partition(".")[0] for each in kind.__mro__)


def refuse_async(source: Any) -> None:
    """Refuse async connections."""
    if hasattr(source, "__aenter__") or type(source).__module__.startswith("sqlalchemy.ext.asyncio"):
        raise TypeError(
            f"{described(source)} is async, and fences need synchronous connections; open one and use it in a thread "
            f"(asyncio.to_thread). Supported are {TAKEN}"
        )


def not_taken(source: Any) -> TypeError:
    """Return the error that lists the supported types."""
    return TypeError(f"{described(source)} is not a connection that can be fenced; supported are {TAKEN}")


def described(source: Any) -> str:
    """Return the type of an object for messages, without secrets."""
    kind = source if isinstance(source, type) else type(source)
    return f"a {kind.__module__}.{kind.__qualname__}"


def connection_of(source: Any) -> Any:
    """Return the SQLAlchemy connection of a connection or session. For a session, this begins the transaction."""
    if hasattr(source, "exec_driver_sql"):
        return source
    session = source() if hasattr(source, "registry") and hasattr(source, "session_factory") else source
    connection = getattr(session, "connection", None)
    if not callable(connection) or not hasattr(session, "flush"):
        raise not_taken(source)
    return connection()


def _kind(source: Any, name: str) -> str:
    try:
        return _KINDS[name]
    except KeyError:
        raise TypeError(f"{described(source)} is connected to {name}; supported are {TAKEN}") from None


def _of_sqlalchemy(source: Any, wall_us: Callable[[], int] | None) -> Target:
    if hasattr(source, "exec_driver_sql"):
        dialect = source.dialect
    elif hasattr(source, "get_bind"):
        dialect = source.get_bind().dialect
    else:
        raise not_taken(source)
    return Target(source, _kind(source, dialect.name), _sqlalchemy(source, dialect.paramstyle), wall_us=wall_us)


def _sqlalchemy(source: Any, style: str) -> Callable[[str, Sequence[Any]], Answer]:
    def perform(sql: str, parameters: Sequence[Any]) -> Answer:
        result = connection_of(source).exec_driver_sql(_marked(sql, style), tuple(parameters))
        rows = [tuple(row) for row in result] if result.returns_rows else []
        return Answer(rows, max(result.rowcount, len(rows)))

    return perform


def _django(source: Any) -> Callable[[str, Sequence[Any]], Answer]:
    def perform(sql: str, parameters: Sequence[Any]) -> Answer:
        with source.cursor() as cursor:
            cursor.execute(sql, tuple(parameters))
            return _answer(cursor)

    return perform


def _dbapi(source: Any, driver: str) -> Callable[[str, Sequence[Any]], Answer]:
    def perform(sql: str, parameters: Sequence[Any]) -> Answer:
        cursor = plain_cursor(source, driver)
        try:
            cursor.execute(_marked(sql, "qmark") if driver == "sqlite3" else sql, tuple(parameters))
            return _answer(cursor)
        finally:
            cursor.close()

    return perform


def _answer(cursor: Any) -> Answer:
    rows = [tuple(row) for row in cursor.fetchall()] if cursor.description is not None else []
    return Answer(rows, max(cursor.rowcount, len(rows)))


def _marked(sql: str, style: str) -> str:
    """Return our SQL with the placeholders of a driver's paramstyle."""
    if style in ("format", "pyformat"):
        return sql
    first, *rest = sql.split("%s")
    if style in ("numeric", "numeric_dollar"):
        sign = "$" if style == "numeric_dollar" else ":"
        return first + "".join(f"{sign}{number}{part}" for number, part in enumerate(rest, 1))
    return "?".join((first, *rest))
