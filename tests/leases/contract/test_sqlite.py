"""The lease contract on SQLite. It has no server to crash: what dies and comes back are its users."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fencepost.testing import LeaseStoreContract, LocalFault


class Sqlite:
    def __init__(self, directory: Path) -> None:
        self.url = f"sqlite:///{directory}/app.db"
        self._file = directory / "app.leases.db"

    def restart(self) -> None:
        """Nothing runs that could be killed; the file is read afresh by every new connection."""

    def forget(self, name: str) -> None:
        with closing(sqlite3.connect(self._file)) as connection, connection:
            connection.execute("DELETE FROM fencepost_lease WHERE name = ?", (name,))

    @contextmanager
    def fault(self) -> Iterator[LocalFault]:
        yield LocalFault(self.url)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Sqlite:
    return Sqlite(tmp_path_factory.mktemp("sqlite"))


class TestSqlite(LeaseStoreContract):
    store_name = "sqlite"
    ttl_s = 2.0  # this store answers within milliseconds, so that less is waited for
