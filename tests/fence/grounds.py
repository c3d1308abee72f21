"""Places to write to, and ways to reach them: every kind of connection, to the ledger's database and to another one."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from fencepost import App, Run
from fencepost.core.overlap import START, WAIT
from fencepost.core.runs import Claim
from fencepost.effects.installing import install, open_database
from fencepost.engine.run import attempt_of
from fencepost.fence.target import target_of
from fencepost.ledger.claiming import claim
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.migrations import migrate
from fencepost.ledger.urls import LedgerUrl
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()
NODE = "0" * 32
EFFECTS = "story_effect"
TTL = "5s"


class Ground:
    """An application on a ledger, a database for effects (its own, or another one), and claims by hand."""

    def __init__(self, ledger_url: str, effects_url: str, *, has_tables: bool = True) -> None:
        ledger = open_ledger(ledger_url, RUNTIME)
        migrate(ledger)
        ledger.close()
        self.app = App(ledger_url, ttl=TTL)
        self.is_ledgers = effects_url == ledger_url
        self.url = LedgerUrl.parse(effects_url)
        self.kind = self.url.kind
        if not self.is_ledgers and has_tables:
            database = open_database(effects_url, RUNTIME)
            install(database)
            database.close()
        self.engine: Engine = sqlalchemy.create_engine(self.url.sqlalchemy())
        self.fence_table = f"{self.url.prefix}fence"
        self.change(f"DROP TABLE IF EXISTS {EFFECTS}")
        self.change(f"CREATE TABLE {EFFECTS} (n INTEGER PRIMARY KEY, x INTEGER)")

    def close(self) -> None:
        self.engine.dispose()
        self.app.close()

    def change(self, sql: str, **values: Any) -> int:
        with self.engine.begin() as connection:
            return connection.execute(text(sql), values).rowcount

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(sql))]

    def effects(self) -> list[int]:
        return [row[0] for row in self.rows(f"SELECT n FROM {EFFECTS} ORDER BY n")]

    def fences(self) -> list[tuple[Any, ...]]:
        key = "`key`" if self.kind == "mysql" else "key"
        where = f"WHERE {key} <> '' ORDER BY {key}"
        return self.rows(f"SELECT {key}, token, grant_id, holder FROM {self.fence_table} {where}")

    def run(self, **policy: Any) -> Run:
        """A run that was really claimed."""
        handle = self.app.job(name=f"job_{RUNTIME.new_id()}", **policy)(lambda: None)
        handle.enqueue()
        connection = self.app.ledger.connect("test")
        (claimed,) = claim(
            connection,
            node=NODE,
            jobs=[handle.job.name],
            queues=["default"],
            limit=1,
            decide=lambda job, *, key_is_taken, **_: WAIT if key_is_taken else START,
        ).claims
        connection.rest()
        return self.run_of(claimed)

    def run_of(self, claimed: Claim) -> Run:
        return Run(self.app.jobs[claimed.job], claimed, self.app.worker_context())

    def successor(self, run: Run, *, by: int = 1) -> Run:
        """The next attempt at the run, which has not been here yet."""
        return self.run_of(attempt_of(run).claim._replace(token=run.token + by, attempt=run.attempt + 1))

    def take_over(self, run: Run) -> None:
        """What the successor of a run does to the fence of this place."""
        if self.is_ledgers:
            table = self.app.ledger.tables.name("run")
            self.change(f"UPDATE {table} SET token = token + 1 WHERE id = :id", id=run.id)
        else:
            with self.successor(run).fence(self.engine):
                pass


def write(tx: Any, number: int = 1) -> None:
    target_of(tx).execute(f"INSERT INTO {EFFECTS} VALUES (%s, 0)", (number,))


# -- ways


@contextmanager
def by_engine(url: LedgerUrl) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url.sqlalchemy(), pool_size=1, max_overflow=0)
    yield engine
    engine.dispose()


@contextmanager
def by_connection(url: LedgerUrl) -> Iterator[Any]:
    with by_engine(url) as engine, engine.connect() as connection:
        yield connection


@contextmanager
def by_session(url: LedgerUrl) -> Iterator[Any]:
    with by_engine(url) as engine, Session(engine) as session:
        yield session


@contextmanager
def by_sessionmaker(url: LedgerUrl) -> Iterator[Any]:
    with by_engine(url) as engine:
        yield sessionmaker(engine)


@contextmanager
def by_scoped_session(url: LedgerUrl) -> Iterator[Any]:
    with by_engine(url) as engine:
        scoped = scoped_session(sessionmaker(engine))
        yield scoped
        scoped.remove()


def driver_connection(url: LedgerUrl, *, autocommit: bool = False) -> Any:
    at = url.sqlalchemy()
    if url.kind == "sqlite":
        return sqlite3.connect(url.path, isolation_level=None if autocommit else "")
    if url.kind == "postgresql":
        import psycopg

        return psycopg.connect(at.set(drivername="postgresql").render_as_string(False), autocommit=autocommit)
    import pymysql

    return pymysql.connect(
        host=at.host,
        port=at.port or 3306,
        user=at.username,
        password=at.password or "",
        database=at.database,
        autocommit=autocommit,
    )


@contextmanager
def by_driver(url: LedgerUrl, *, autocommit: bool = False) -> Iterator[Any]:
    connection = driver_connection(url, autocommit=autocommit)
    yield connection
    connection.close()


@contextmanager
def by_autocommitting_driver(url: LedgerUrl) -> Iterator[Any]:
    with by_driver(url, autocommit=True) as connection:
        yield connection


@contextmanager
def by_django(url: LedgerUrl) -> Iterator[Any]:
    connections = django_connections()
    at, alias = url.sqlalchemy(), f"db_{RUNTIME.new_id()}"
    settings = {
        "ENGINE": f"django.db.backends.{'sqlite3' if url.kind == 'sqlite' else url.kind}",
        "NAME": at.database,
        "USER": at.username or "",
        "PASSWORD": at.password or "",
        "HOST": at.host or "",
        "PORT": at.port or "",
    }
    connections.settings[alias] = connections.configure_settings({"default": settings})["default"]
    yield connections[alias]
    connections[alias].close()
    del connections[alias], connections.settings[alias]


def atomic(connection: Any) -> Any:
    """Return a block of Django's, on a connection of `by_django`."""
    from django.db.transaction import Atomic

    return Atomic(using=connection.alias, savepoint=True, durable=False)


def django_connections() -> Any:
    import pymysql
    from django.conf import settings

    pymysql.install_as_MySQLdb()
    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}, USE_TZ=True
        )
        import django

        django.setup()
    from django.db import connections

    return connections


WAYS: dict[str, Callable[[LedgerUrl], Any]] = {
    "engine": by_engine,
    "connection": by_connection,
    "session": by_session,
    "sessionmaker": by_sessionmaker,
    "scoped_session": by_scoped_session,
    "driver": by_driver,
    "autocommitting_driver": by_autocommitting_driver,
    "django": by_django,
}


def a_second_later(run: Run) -> None:
    """Let the time pass in which a run does not look whether a fence is still its own when it begins."""
    found_at = attempt_of(run).found_at
    found_at.update(dict.fromkeys(found_at, -math.inf))
