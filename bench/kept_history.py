"""Databases with months of history (`made_history.py`) that are made once and kept in the testbed's cache.

A kept database has a name made of everything that decides what is in it. Servers work on the kept folder itself, one
program at a time. What has to be recent is added at each start, with ids above those of the bulk, and what an earlier
start has added is removed first. To remove a kept database costs time and nothing else.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from made_history import DAY_US, DAYS, LIVING, Filling, MariaWords, SqliteWords, Words

from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.migrations import NEWEST, migrate
from fencepost.threaded import ThreadedRuntime
from testbed import cache
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres

BIG = ("run", "attempt", "journal", "audit", "run_search")
FAST_POSTGRES = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_wal_size": "8GB",
    "autovacuum": "off",
    "maintenance_work_mem": "512MB",
}
FAST_MARIADB = {
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-doublewrite": "0",
    "innodb-buffer-pool-size": "2G",
    "innodb-log-file-size": "512M",
    "innodb-autoinc-lock-mode": "2",
}


def add_today(words: Words, execute: Callable[[str], Any], runs: int) -> None:
    """Remove what an earlier start added to the bulk, and add the last day and what is live, as of now."""
    now_us = time.time_ns() // 1000
    for table, column in (("attempt", "run_id"), ("log_chunk", "run_id"), ("run", "id")):
        execute(f"DELETE FROM fencepost_{table} WHERE {column} > {runs}")
    execute(f"DELETE FROM fencepost_journal WHERE id > {max(runs // 20, 1)}")
    execute("DELETE FROM fencepost_login")
    execute(f"UPDATE fencepost_schedule SET next_due_at = {now_us + 365 * DAY_US}")
    execute("UPDATE fencepost_node SET left_at = NULL")
    execute(f"UPDATE fencepost_node SET left_at = {now_us} WHERE token > {LIVING}")
    Filling(words, execute, now_us).today(runs, max(runs // DAYS, 100))
    if words.name != "mysql":
        execute("ANALYZE")


def kept_at(words: Words, runs: int) -> Path:
    """Return where the bulk is kept: the name has everything that decides what is in it."""
    decides = [NEWEST]
    Filling(words, decides.append, 0).base(runs)
    digest = hashlib.sha256(repr(decides).encode()).hexdigest()[:12]
    return cache.directory() / "history" / f"{words.name}-{runs}-{digest}"


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Keep other programs away from a kept database. One that was left half made is made anew."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if place.exists() and not (place / "complete").exists():
            shutil.rmtree(place)
        yield


class _Kept:
    """A server on a folder that stays."""

    stop_deadline_s = 300.0
    start_deadline_s = 300.0

    def keep_in(self, place: Path) -> None:
        self.data = place / "data"

    def prepare(self) -> None:
        if not self.data.exists():
            self.data.parent.mkdir(parents=True, exist_ok=True)
            super().prepare()  # type: ignore[misc]

    def close(self) -> None:
        self.stop()  # type: ignore[attr-defined]
        super().close()  # type: ignore[misc]


class KeptPostgres(_Kept, Postgres):
    pass


class KeptMariaDB(_Kept, MariaDB):
    pass


@contextmanager
def filled_postgres(runs: int) -> Iterator[str]:
    """Yield the URL of a PostgreSQL with the history, as shipped."""
    place = kept_at(Words(), runs)
    with alone(place):
        if not place.exists():
            with _server(KeptPostgres(settings=FAST_POSTGRES), place) as server:
                _fill(server.url, Words(), runs)
            (place / "complete").touch()
        with _server(KeptPostgres(), place) as server:
            add_today(Words(), _postgres(server.url), runs)
            yield server.url


@contextmanager
def filled_mariadb(runs: int) -> Iterator[str]:
    """Yield the URL of a MariaDB with the history: as shipped, but with a buffer pool of 1 GB instead of 128 MB."""
    place = kept_at(MariaWords(), runs)
    with alone(place):
        if not place.exists():
            with _server(KeptMariaDB(settings=FAST_MARIADB), place) as server:
                _fill(server.url, MariaWords(), runs)
            (place / "complete").touch()
        settings = {"innodb-buffer-pool-size": "1G"}
        with _server(KeptMariaDB(settings=settings), place) as server:
            add_today(MariaWords(), _mariadb(server.url), runs)
            yield server.url


@contextmanager
def filled_sqlite(runs: int) -> Iterator[str]:
    """Yield the URL of a SQLite file with the history."""
    place = kept_at(SqliteWords(), runs)
    with alone(place):
        url = f"sqlite:///{place}/ledger.db"
        if not place.exists():
            place.mkdir()
            _fill(url, SqliteWords(), runs)
            (place / "complete").touch()
        add_today(SqliteWords(), _sqlite(url), runs)
        yield url


FILLED = {"postgresql": filled_postgres, "mysql": filled_mariadb, "sqlite": filled_sqlite}


@contextmanager
def _server(server: Any, place: Path) -> Iterator[Any]:
    server.keep_in(place)
    with server:
        yield server


def _fill(url: str, words: Words, runs: int) -> None:
    began_at = time.monotonic()
    ledger = open_ledger(url, ThreadedRuntime())
    migrate(ledger)
    ledger.close()
    execute = {"postgresql": _postgres, "mysql": _mariadb, "sqlite": _sqlite}[words.name](url)
    again = without_indexes(words.name, execute, BIG)
    Filling(words, execute, time.time_ns() // 1000).base(runs)
    for statement in again:
        execute(statement)
    if words.name == "postgresql":
        execute("VACUUM ANALYZE")
    elif words.name == "mysql":
        execute(f"ANALYZE TABLE {', '.join(f'fencepost_{table}' for table in BIG)}")
    print(f"{runs:,} runs on {words.name} made in {time.monotonic() - began_at:.0f} s", file=sys.stderr, flush=True)


def without_indexes(name: str, execute: Callable[[str], Any], tables: Iterable[str]) -> list[str]:
    """Drop the secondary indexes of tables; return the statements that create them again."""
    again: list[str] = []
    for table in (f"fencepost_{each}" for each in tables):
        if name == "postgresql":
            found = execute(f"SELECT indexname, indexdef FROM pg_indexes WHERE tablename = '{table}'")
            found = [(index, made) for index, made in found if not index.endswith("_pkey")]
        elif name == "sqlite":
            found = execute(f"SELECT name, sql FROM sqlite_master WHERE tbl_name = '{table}' AND type = 'index'")
            found = [(index, made) for index, made in found if made]
        else:
            found = [(index, made) for index, made in _indexes_of(table, execute)]
        for index, made in found:
            execute(f"DROP INDEX {index}" + (f" ON {table}" if name == "mysql" else ""))
            again.append(made)
    return again


def _indexes_of(table: str, execute: Callable[[str], Any]) -> list[tuple[str, str]]:
    rows = execute(
        "SELECT index_name, non_unique, column_name, collation FROM information_schema.statistics "
        f"WHERE table_schema = DATABASE() AND table_name = '{table}' AND index_name <> 'PRIMARY' "
        "ORDER BY index_name, seq_in_index"
    )
    columns: dict[tuple[str, int], list[str]] = {}
    for index, not_unique, column, order in rows:
        columns.setdefault((index, not_unique), []).append(f"`{column}`{' DESC' if order == 'D' else ''}")
    return [
        (index, f"CREATE {'' if not_unique else 'UNIQUE '}INDEX {index} ON {table} ({', '.join(parts)})")
        for (index, not_unique), parts in columns.items()
    ]


def _postgres(url: str) -> Callable[[str], Any]:
    import psycopg

    connection = psycopg.connect(url, autocommit=True)

    def execute(sql: str) -> Any:
        cursor: Any = connection.execute(sql)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []

    return execute


def _mariadb(url: str) -> Callable[[str], Any]:
    import pymysql
    from sqlalchemy.engine import make_url

    parts = make_url(url)
    connection = pymysql.connect(
        host=parts.host, port=parts.port or 3306, user=parts.username, database=parts.database, autocommit=True
    )

    def execute(sql: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    return execute


def _sqlite(url: str) -> Callable[[str], Any]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
    connection.execute("PRAGMA synchronous = OFF")
    return lambda sql: connection.execute(sql).fetchall()


KINDS: dict[str, tuple[Words, Any]] = {"postgresql": (Words(), Postgres), "mysql": (MariaWords(), MariaDB)}
EXECUTE: dict[str, Callable[[str], Callable[[str], Any]]] = {
    "postgresql": _postgres,
    "mysql": _mariadb,
    "sqlite": _sqlite,
}
