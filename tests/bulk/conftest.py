"""Databases to read from and to write to: one server per test session, each with a database that has nothing in it but
the empty tables of effects, and beside it a ledger's.

`kind` runs a test on each of the three; a test that wants one alone parametrizes `kind` itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import Engine, text

from fencepost.effects.installing import install, open_database
from fencepost.ledger.urls import LedgerUrl
from fencepost.threaded import ThreadedRuntime
from tests.servers import execute

RUNTIME = ThreadedRuntime()
PREFIXES = ("shared_", "fencepost_")  # those of `ledger_url` on servers and on SQLite: any ledger may write anywhere
_LISTING = {
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
    "mysql": "SELECT table_name FROM information_schema.tables WHERE table_schema = 'bulk'",
}


@pytest.fixture(scope="session")
def effects_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of SQLite with the empty tables of effects, to be copied."""
    file = tmp_path_factory.mktemp("effects") / "effects.db"
    _install(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def effects_made() -> Iterator[dict[str, Engine]]:
    """The engines by URL of the databases on servers that were made already in this session."""
    made: dict[str, Engine] = {}
    yield made
    for each in made.values():
        each.dispose()


@pytest.fixture
def effects_url(kind: str, tmp_path: Path, effects_made: dict[str, Engine], request: pytest.FixtureRequest) -> str:
    """A database that is no ledger's, with empty tables of effects and no others: on servers always the same one."""
    if kind == "sqlite":
        shutil.copyfile(request.getfixturevalue("effects_file"), tmp_path / "effects.db")
        return f"sqlite:///{tmp_path}/effects.db"
    server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
    url = f"{server.url.rpartition('/')[0]}/bulk"
    if url not in effects_made:
        execute(server, "CREATE DATABASE bulk")
        _install(url)
        effects_made[url] = sqlalchemy.create_engine(LedgerUrl.parse(url).sqlalchemy())
    _empty(effects_made[url], kind)
    return url


@pytest.fixture
def engine(effects_url: str) -> Iterator[Engine]:
    """An engine for that database: a source of rows, or a target for effects."""
    made = sqlalchemy.create_engine(LedgerUrl.parse(effects_url).sqlalchemy())
    yield made
    made.dispose()


def _install(url: str) -> None:
    for prefix in PREFIXES:
        database = open_database(f"{url}?prefix={prefix}", RUNTIME)
        install(database)
        database.close()


def _empty(engine: Engine, kind: str) -> None:
    """Drop what the test before has made, and empty the tables of effects."""
    quote = engine.dialect.identifier_preparer.quote_identifier
    with engine.begin() as connection:
        for name in connection.execute(text(_LISTING[kind])).scalars().all():
            if not name.startswith(PREFIXES):
                connection.execute(text(f"DROP TABLE {quote(name)}"))
        for prefix in PREFIXES:
            for table in ("idempotency_key", "checkpoint", "dead_letter"):
                connection.execute(text(f"DELETE FROM {prefix}{table}"))
            connection.execute(text(f"DELETE FROM {prefix}fence WHERE grant_id <> ''"))  # the floor has none, and stays
            connection.execute(text(f"UPDATE {prefix}fence SET token = 0, raised_at = 0"))
