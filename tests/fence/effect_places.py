"""A database with the tables of effects, and transactions there by each kind of connection."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost.effects.installing import install, open_database
from fencepost.ledger.database import Database
from fencepost.threaded import ThreadedRuntime
from testbed.wait import until
from tests.ledger.steps import Watcher

RUNTIME = ThreadedRuntime()
WAYS = [
    *("sqlite3", "sqlite3 by sqlalchemy"),
    *("psycopg", "psycopg by sqlalchemy", "psycopg by session"),
    *("pymysql", "pymysql by sqlalchemy", "pymysql by session"),
]
SOON_S = 20.0


class Tx:
    """One transaction of one kind of connection: `tx` is what users hand over."""

    def __init__(self, tx: Any, number: int, close: Callable[[], None]) -> None:
        self.tx = tx
        self.number = number  # by which the server knows it
        self._close = close

    def commit(self) -> None:
        self.tx.commit()

    def rollback(self) -> None:
        self.tx.rollback()

    def close(self) -> None:
        self._close()


class EffectPlace:
    """Opens transactions in one database, by one kind of connection, at one isolation."""

    def __init__(self, way: str, database: Database) -> None:
        self.way = way
        self.database = database
        self.kind = database.dialect.name
        self.prefix = database.tables.prefix
        self.engine = sa.create_engine(database.url.sqlalchemy(), poolclass=sa.NullPool, connect_args=self._arguments())
        self._watcher = None if self.kind == "sqlite" else Watcher(database)  # type: ignore[arg-type]
        self._opened: list[Tx] = []
        self.isolation = "READ COMMITTED"

    def begin(self) -> Tx:
        """Open a transaction on a connection of its own."""
        made = self._begin()
        self._opened.append(made)
        return made

    def rows(self, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """Read what is committed."""
        with self.engine.connect() as connection:
            sql = f"SELECT {columns} FROM {self.database.tables.name(table)} ORDER BY 1"
            return [tuple(row) for row in connection.exec_driver_sql(sql)]

    def execute(self, sql: str) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(sql.replace("T_", self.prefix))

    def waits(self, tx: Tx) -> None:
        """Wait until the server says that `tx` waits for a lock. A SQLite file cannot tell."""
        if self._watcher is not None:
            until(lambda: self._watcher is not None and self._watcher.waits(tx.number), SOON_S, what="it waits")

    def close(self) -> None:
        for each in self._opened:
            each.close()
        if self._watcher is not None:
            self._watcher.close()
        self.engine.dispose()
        self.database.close()

    def _arguments(self) -> dict[str, Any]:
        return {"timeout": SOON_S, "check_same_thread": False} if self.kind == "sqlite" else {}

    def _begin(self) -> Tx:
        if "by" in self.way:
            return self._of_sqlalchemy()
        raw = self._of_driver()
        return Tx(raw, self._number(raw), raw.close)

    def _of_driver(self) -> Any:
        if self.kind == "sqlite":
            return sqlite3.connect(self.database.url.path, **self._arguments())
        driver: Any = psycopg if self.kind == "postgresql" else pymysql
        arguments = sa.make_url(self.database.url.sqlalchemy()).translate_connect_args(username="user")
        if self.kind == "postgresql":
            arguments["dbname"] = arguments.pop("database")
        connection = driver.connect(**arguments)
        settings = (
            f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {self.isolation}"
            if self.kind == "postgresql"
            else f"SET SESSION TRANSACTION ISOLATION LEVEL {self.isolation}"
        )
        with connection.cursor() as cursor:
            cursor.execute(settings)
        connection.commit()
        return connection

    def _of_sqlalchemy(self) -> Tx:
        connection = self.engine.connect()
        if self.kind != "sqlite":
            connection = connection.execution_options(isolation_level=self.isolation)
        number = self._number(connection.connection.dbapi_connection)
        connection.rollback()
        if "session" not in self.way:
            return Tx(connection, number, connection.close)
        session = Session(connection)

        def close() -> None:
            session.close()
            connection.close()

        return Tx(session, number, close)

    def _number(self, raw: Any) -> int:
        match self.kind:
            case "postgresql":
                return int(raw.info.backend_pid)
            case "mysql":
                return int(raw.thread_id())
        return 0


class Asking(threading.Thread):
    """Asks something in a thread of its own; `answer` waits for it, and raises what it raised."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self._outcome: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._outcome = self._ask()
        except BaseException as error:  # noqa: BLE001 - raised where it is asked for
            self._error = error

    def answer(self) -> Any:
        self.join(SOON_S)
        assert not self.is_alive(), "no answer"
        if self._error is not None:
            raise self._error
        return self._outcome


def effects_url(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/effects.db"
    server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
    return f"{server.url}?prefix=e{RUNTIME.new_id()[:10]}_"


def kind_of(way: str) -> str:
    return {"sqlite3": "sqlite", "psycopg": "postgresql", "pymysql": "mysql"}[way.partition(" ")[0]]


_URLS = pytest.StashKey[dict[str, str]]()


@pytest.fixture(params=WAYS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EffectPlace]:
    """A database with the tables of effects, and nothing in them, reached by each way."""
    kind = kind_of(request.param)
    module = request.node.getparent(pytest.Module)
    urls = module.stash.setdefault(_URLS, {})  # making the tables takes longer than a test
    is_new = kind not in urls
    if is_new:
        urls[kind] = effects_url(kind, request, tmp_path_factory.mktemp("effects"))
    database = open_database(urls[kind], RUNTIME)
    if is_new:
        install(database)
    made = EffectPlace(request.param, database)
    yield made
    made.close()
    try:
        for table in ("idempotency_key", "checkpoint"):
            made.execute(f"DELETE FROM T_{table}")
    except sa.exc.DBAPIError:  # the test has dropped it
        del urls[kind]
    made.engine.dispose()
