"""The lease contract on a table in PostgreSQL."""

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

        yield Networked(postgres, forget)


class TestPostgres(LeaseStoreContract):
    store_name = "postgresql"
