"""A ledger on each database: one server per test session, and tables under a fresh prefix for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.ledger import migrations
from fencepost.ledger.ledger import Ledger, open_ledger
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
def migrated() -> set[str]:
    """The URLs under which tables were made already in this session."""
    return set()


@pytest.fixture
def ledger_url(kind: str, bare_url: str, migrated: set[str]) -> str:
    """A URL under which there are empty tables; on servers always the same, to save time."""
    url = bare_url if kind == "sqlite" else f"{bare_url.partition('?')[0]}?prefix=shared_"
    made = open_ledger(url, RUNTIME)
    if url not in migrated:
        migrations.migrate(made)
        migrated.add(url)
    made.write(lambda cursor: [cursor.execute(f"DELETE FROM {table.name}") for table in made.tables.all])
    made.close()
    return url


@pytest.fixture
def ledger(ledger_url: str, opened: Callable[[str], Ledger]) -> Ledger:
    """A ledger with empty tables."""
    return opened(ledger_url)
