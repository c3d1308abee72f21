"""The lease contract on PostgreSQL's advisory locks."""

from collections.abc import Iterator

import psycopg
import pytest

from fencepost.testing import LeaseStoreContract
from testbed.postgres import Postgres
from tests.leases.contract.networked import Networked


@pytest.fixture(scope="module")
def server() -> Iterator[Networked]:
    with Postgres() as postgres:

        def forget(name: str) -> None:
            with psycopg.connect(postgres.url, autocommit=True) as connection:
                connection.execute("DELETE FROM fencepost_lease WHERE name = %s", (name,))

        yield Networked(postgres, forget, postgres.url.replace("postgresql:", "postgresql+advisory:"))


class TestAdvisory(LeaseStoreContract):
    store_name = "pg advisory"
    racers, grants_in_turn = 4, 250  # by default more: so on SQLite, PostgreSQL and Redis
