"""Databases to play on: a ledger, the leases beside it, and two tables of effects, one of them elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy
from sqlalchemy import Engine, NullPool, text

from fencepost.effects.installing import install, open_database
from fencepost.leases.schemes import store_from_url
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.migrations import migrate
from fencepost.ledger.urls import LedgerUrl
from fencepost.schema.effects import EffectTables
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from tests.crashpoints.by_hand import HandRuntime

EFFECTS = "crash_effect"
INPUT = "crash_input"  # of bulk work
KEYS = (1, 2, 3, 4, 5)
PREFIX = "crash_"
KINDS = ("sqlite", "postgresql", "mysql")
_LEDGERS = (
    *("node", "schedule", "run", "attempt", "exclusive", "journal"),
    *("session", "lease", "lease_history", "transition"),
)
# Every change of a run's state, written by the database itself in the transaction that makes it.
_COLUMNS = f"INSERT INTO {PREFIX}transition (run_id, was, became, token) VALUES"
_ADDED, _MOVED = (f"{_COLUMNS} (NEW.id, {was}, NEW.state, NEW.token)" for was in ("NULL", "OLD.state"))
_NOTING = {
    "sqlite": (
        f"CREATE TRIGGER added AFTER INSERT ON {PREFIX}run BEGIN {_ADDED}; END",
        f"CREATE TRIGGER moved AFTER UPDATE ON {PREFIX}run WHEN OLD.state <> NEW.state BEGIN {_MOVED}; END",
    ),
    "postgresql": (
        f"CREATE FUNCTION added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {_ADDED}; RETURN NULL; END $$",
        f"CREATE FUNCTION moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {_MOVED}; RETURN NULL; END $$",
        f"CREATE TRIGGER added AFTER INSERT ON {PREFIX}run FOR EACH ROW EXECUTE FUNCTION added()",
        f"CREATE TRIGGER moved AFTER UPDATE ON {PREFIX}run FOR EACH ROW WHEN (OLD.state <> NEW.state) "
        "EXECUTE FUNCTION moved()",
    ),
    "mysql": (
        f"CREATE TRIGGER added AFTER INSERT ON {PREFIX}run FOR EACH ROW {_ADDED}",
        f"CREATE TRIGGER moved AFTER UPDATE ON {PREFIX}run FOR EACH ROW "
        f"BEGIN IF OLD.state <> NEW.state THEN {_MOVED}; END IF; END",
    ),
}
_NUMBER = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "mysql": "bigint AUTO_INCREMENT PRIMARY KEY",
}


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a play takes place: all that a process has to be told to take part."""

    kind: str
    url: str
    elsewhere: str
    template: str = ""  # a folder of files to copy, on SQLite

    def empty(self) -> None:
        """Make everything what it was when it was new."""
        if self.kind == "sqlite":
            self._copy_files()
            return
        for url, names in ((self.url, _LEDGERS), (self.elsewhere, ())):
            with engine(url).begin() as connection:
                for statement in _emptying(names):
                    connection.execute(text(statement))

    def expire_sessions(self, *ids: str) -> None:
        """Let all the time pass that these sessions have left, which nobody renews; without ids: all there are."""
        sql = f"UPDATE {PREFIX}session SET expires_at = 0"
        with engine(_lease_url(self.url)).begin() as connection:
            if not ids:
                connection.execute(text(sql))
            for each in ids:
                connection.execute(text(f"{sql} WHERE id = :id"), {"id": each})

    def _copy_files(self) -> None:
        folder = Path(self.url.removeprefix("sqlite:///")).parent
        for file in folder.iterdir():
            file.unlink()
        for file in Path(self.template).iterdir():
            shutil.copyfile(file, folder / file.name)


def _lease_url(url: str) -> str:
    if not url.startswith("sqlite"):
        return url
    path = Path(url.removeprefix("sqlite:///"))
    return f"sqlite:///{path.with_name(f'{path.stem}.leases{path.suffix}')}"


@cache
def engine(url: str) -> Engine:
    """Return this process's own engine, to look and to tidy with."""
    return new_engine(url)


def new_engine(url: str) -> Engine:
    """Return an engine; for files, which are replaced from play to play, it keeps no connection."""
    options: dict[str, Any] = {"poolclass": NullPool} if url.startswith("sqlite") else {"pool_size": 1}
    return sqlalchemy.create_engine(LedgerUrl.parse(url).sqlalchemy(), **options)


def _emptying(names: Sequence[str]) -> Iterator[str]:
    effects = EffectTables(PREFIX)
    yield from (f"DELETE FROM {PREFIX}{name}" for name in names)
    yield from (f"DELETE FROM {table.name}" for table in effects.all if table is not effects.fence)
    yield f"DELETE FROM {effects.fence.name} WHERE grant_id <> ''"
    yield f"UPDATE {effects.fence.name} SET token = 0, raised_at = 0"
    yield f"DELETE FROM {EFFECTS}"


@contextmanager
def ground(kind: str, publish: Callable[[Ground], None]) -> Iterator[Ground]:
    """Prepare a ground, on a server of its own where there is one; `publish` puts into the ledger what stays there."""
    with ExitStack() as stack:
        match kind:
            case "sqlite":
                # In memory, where there is such a place: processes end here, no machine loses its power.
                place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=place))
                yield _files(Path(folder), publish)
            case "postgresql":
                settings = {"fsync": "off", "synchronous_commit": "off"}
                server = stack.enter_context(Postgres(settings=settings))
                yield _prepared(Ground(kind, f"{server.url}?prefix={PREFIX}", _other_postgres(server)), publish)
            case "mysql":
                maria = stack.enter_context(MariaDB(settings={"innodb-flush-log-at-trx-commit": "0"}))
                yield _prepared(Ground(kind, f"{maria.url}?prefix={PREFIX}", _other_mariadb(maria)), publish)


def _files(folder: Path, publish: Callable[[Ground], None]) -> Ground:
    template, playing = folder / "template", folder / "playing"
    template.mkdir()
    playing.mkdir()
    _prepared(Ground("sqlite", *_sqlite_urls(template)), publish)
    return Ground("sqlite", *_sqlite_urls(playing), template=str(template))


def _sqlite_urls(folder: Path) -> tuple[str, str]:
    return f"sqlite:///{folder}/app.db?prefix={PREFIX}", f"sqlite:///{folder}/elsewhere.db?prefix={PREFIX}"


def _other_postgres(server: Postgres) -> str:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE elsewhere")
    return server.url.removesuffix("/postgres") + f"/elsewhere?prefix={PREFIX}"


def _other_mariadb(server: MariaDB) -> str:
    with server.client() as client, client.cursor() as cursor:
        cursor.execute("CREATE DATABASE elsewhere")
    return server.url.removesuffix("/fencepost") + f"/elsewhere?prefix={PREFIX}"


def _prepared(made: Ground, publish: Callable[[Ground], None]) -> Ground:
    ledger = opened(made)
    migrate(ledger)
    ledger.close()
    store = store_from_url(ledger.url.lease_url(), HandRuntime())
    store.start()
    store.shutdown()
    database = open_database(made.elsewhere, HandRuntime())
    install(database)
    database.close()
    columns = "resource varchar(191), work varchar(191), token bigint NOT NULL, grant_id varchar(191), run_id bigint"
    for url in (made.url, made.elsewhere):
        with engine(url).begin() as connection:
            connection.execute(text(f"CREATE TABLE {EFFECTS} (id {_NUMBER[made.kind]}, {columns})"))
            connection.execute(text(f"CREATE TABLE {INPUT} (id integer PRIMARY KEY)"))
            connection.execute(text(f"INSERT INTO {INPUT} (id) VALUES (:id)"), [{"id": key} for key in KEYS])
    _note_transitions(made)
    publish(made)
    return made


def _note_transitions(made: Ground) -> None:
    columns = f"id {_NUMBER[made.kind]}, run_id bigint, was varchar(20), became varchar(20), token bigint"
    with engine(made.url).begin() as connection:
        for statement in (f"CREATE TABLE {PREFIX}transition ({columns})", *_NOTING[made.kind]):
            connection.exec_driver_sql(statement)


def opened(made: Ground, runtime: Any = None) -> Ledger:
    return open_ledger(made.url, runtime or HandRuntime())
