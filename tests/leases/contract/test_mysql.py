"""The lease contract on a table in MariaDB."""

from collections.abc import Iterator

import pytest

from fencepost.testing import LeaseStoreContract
from testbed.mariadb import MariaDB
from tests.leases.contract.networked import Networked


@pytest.fixture(scope="module")
def server() -> Iterator[Networked]:
    with MariaDB() as mariadb:

        def forget(name: str) -> None:
            with mariadb.client() as connection, connection.cursor() as cursor:
                cursor.execute("DELETE FROM fencepost_lease WHERE name = %s", (name,))
                connection.commit()

        yield Networked(mariadb, forget)


class TestMysql(LeaseStoreContract):
    store_name = "mysql"
    racers, grants_in_turn = 4, 250  # by default more: so on SQLite, PostgreSQL and Redis
