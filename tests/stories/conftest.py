"""Each story is told on an empty database of a real server."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest

from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from tests.stories.told import Place


@pytest.fixture(params=["postgresql", "mariadb"])
def place(request: pytest.FixtureRequest) -> Place:
    """Two empty databases on a server of this kind."""
    server = request.getfixturevalue("postgres" if request.param == "postgresql" else "mariadb")
    return Place(_new_database(server), _new_database(server))


def _new_database(server: Postgres | MariaDB) -> str:
    name = f"story_{uuid4().hex[:12]}"
    if isinstance(server, Postgres):
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
    else:
        with server.client() as client, client.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
    return f"{server.url.rpartition('/')[0]}/{name}"
