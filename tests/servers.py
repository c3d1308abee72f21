"""The databases that tests share, and a ledger on each: one server of a kind per process of pytest.

A server is started when it is first asked for. Tests take tables under a prefix of their own, or empty the shared ones;
who stops a server, fills it or changes its settings starts one alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from fencepost.core.audit import FIRST
from fencepost.ledger import migrations
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.schema.effects import EffectTables
from fencepost.threaded import ThreadedRuntime
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres

RUNTIME = ThreadedRuntime()
KINDS = ("sqlite", "postgresql", "mysql")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres(settings={"fsync": "off"}) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    with MariaDB(settings={"innodb-flush-log-at-trx-commit": "0"}) as server:
        yield server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bare_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URL under which there are no tables yet."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
    return f"{server.url}?prefix=t{RUNTIME.new_id()[:10]}_"


@pytest.fixture
def opened() -> Iterator[Callable[[str], Ledger]]:
    """Open ledgers that are closed after the test."""
    ledgers: list[Ledger] = []

    def open_one(url: str) -> Ledger:
        ledgers.append(open_ledger(url, RUNTIME))
        return ledgers[-1]

    yield open_one
    for ledger in ledgers:
        ledger.close()


@pytest.fixture(scope="session")
def migrated() -> dict[str, list[str]]:
    """The URLs under which tables were made already in this session, and the statements that empty them."""
    return {}


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of SQLite with empty tables, to be copied."""
    file = tmp_path_factory.mktemp("migrated") / "app.db"
    made = open_ledger(f"sqlite:///{file}", RUNTIME)
    migrations.migrate(made)
    made.close()
    return file


@pytest.fixture
def ledger_url(kind: str, bare_url: str, migrated: dict[str, list[str]], request: pytest.FixtureRequest) -> str:
    """A URL under which there are empty tables; on servers always the same, to save time."""
    if kind == "sqlite":
        shutil.copyfile(request.getfixturevalue("migrated_file"), bare_url.removeprefix("sqlite:///"))
        return bare_url
    url = f"{bare_url.partition('?')[0]}?prefix=shared_"
    if url not in migrated:
        made = open_ledger(url, RUNTIME)
        migrations.migrate(made)
        migrated[url] = list(_emptying(made))
        made.close()
    server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
    execute(server, *migrated[url])
    return url


def _emptying(ledger: Ledger) -> Iterator[str]:
    """The statements that make tables what they were after they were migrated."""
    effects = EffectTables(ledger.url.prefix)
    for table in (*ledger.tables.all, *effects.all):
        if table not in (ledger.tables.identity, ledger.tables.operating["audit_head"], effects.fence):
            yield f"DELETE FROM {table.name}"
    head = ledger.tables.operating["audit_head"].name
    yield f"UPDATE {head} SET n = 0, hash = '{FIRST}', floor_n = 0, floor_hash = '{FIRST}'"
    # Else what one test notes of older nodes, or of a restored ledger, decides in the next.
    yield f"UPDATE {ledger.tables.identity.name} SET nameless_until = NULL, held_why = NULL"
    yield f"DELETE FROM {effects.fence.name} WHERE grant_id <> ''"  # the floor has none, and stays
    yield f"UPDATE {effects.fence.name} SET token = 0, raised_at = 0"


def execute(server: Postgres | MariaDB, *statements: str) -> None:
    """Do this by the server's own driver, which is many times quicker than to open a ledger for it."""
    if isinstance(server, Postgres):
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("; ".join(statements))
        return
    with server.client() as client, client.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        client.commit()


@pytest.fixture
def ledger(ledger_url: str, opened: Callable[[str], Ledger]) -> Ledger:
    """A ledger with empty tables."""
    return opened(ledger_url)
