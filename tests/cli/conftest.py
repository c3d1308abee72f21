import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.app.composing import publish
from testbed.postgres import Postgres
from tests.cli.inside import Done, call, shop

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> str:
    """The URL of a store: the one that is always there, and the one of the issue."""
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """Tables of its own, so that locks of other tests are not seen."""
    return f"{postgres.url}?prefix=t{next(_numbers)}_"


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    """A ledger with the jobs of the shop."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    app = shop(url)
    publish(app)
    app.close()
    return url


@pytest.fixture
def act(ledger: str) -> Callable[..., Done]:
    """Call a command on the ledger."""

    def act(*words: str) -> Done:
        return call(*words, ledger=ledger)

    return act
