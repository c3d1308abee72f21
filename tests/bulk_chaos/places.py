"""Where ledger and effects are: on servers of our own, in one database or in two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy import Connection, Engine, text

from fencepost.effects import installing
from fencepost.ledger import migrations
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.urls import LedgerUrl
from fencepost.threaded import ThreadedRuntime
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from testbed.server import Server
from tests.bulk_chaos import material

_AT_ONCE = 20_000


class Place(NamedTuple):
    """A ledger, and a database of effects: the ledger's own if `effects` is empty."""

    name: str
    ledger: str
    effects: str

    def engine(self) -> Engine:
        """Return an engine for the database of the effects."""
        return sqlalchemy.create_engine(LedgerUrl.parse(self.effects or self.ledger).sqlalchemy())

    @contextmanager
    def looked_at(self) -> Iterator[Connection]:
        """Connect to the database of the effects, to look."""
        engine = self.engine()
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()


# Processes are killed here, not machines: nothing has to wait for the disk.
def _postgres() -> Server:
    return Postgres(settings={"fsync": "off", "max_connections": "200"})


def _mariadb() -> Server:
    return MariaDB(settings={"innodb-flush-log-at-trx-commit": "0", "max-connections": "200"})


PLACES: dict[str, tuple[Callable[[], Server] | None, Callable[[], Server] | None]] = {
    "postgres": (_postgres, None),
    "sqlite+postgres": (None, _postgres),
    "postgres+postgres": (_postgres, _postgres),
    "postgres+mariadb": (_postgres, _mariadb),
    "mariadb": (_mariadb, None),
}
"""Which servers there are for the ledger (None: a file of SQLite) and for the effects (None: the ledger's own)."""


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Place]:
    """Start the servers, and make the tables."""
    for_ledger, for_effects = PLACES[name]
    with ExitStack() as stack:
        ledger = stack.enter_context(for_ledger()).url if for_ledger else f"sqlite:///{folder}/ledger.db"
        effects = stack.enter_context(for_effects()).url if for_effects else ""
        place = Place(name, ledger, effects)
        _migrate(place)
        yield place


def fill(place: Place, rows: int) -> None:
    """Make the rows, and a table for effects in which nothing keeps the same row from landing twice."""
    engine = place.engine()
    with engine.begin() as connection:
        for table in (material.TABLE, material.EFFECTS):
            connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
        connection.execute(text(f"CREATE TABLE {material.TABLE} (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL)"))
        connection.execute(
            text(
                f"CREATE TABLE {material.EFFECTS} (id BIGINT NOT NULL, amount BIGINT NOT NULL CHECK (amount >= 0), "
                "worker BIGINT NOT NULL, landed_at BIGINT NOT NULL)"
            )
        )
        keys = material.keys(rows)
        for start in range(0, rows, _AT_ONCE):
            _insert(connection, [(key, material.amount(key)) for key in keys[start : start + _AT_ONCE]])
    engine.dispose()


def _insert(connection: Any, values: list[tuple[int, int]]) -> None:
    cursor = connection.connection.cursor()
    if connection.dialect.name == "postgresql":
        with cursor.copy(f"COPY {material.TABLE} (id, amount) FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)
    else:
        cursor.executemany(f"INSERT INTO {material.TABLE} (id, amount) VALUES (%s, %s)", values)
    cursor.close()


def _migrate(place: Place) -> None:
    runtime = ThreadedRuntime()
    ledger = open_ledger(place.ledger, runtime)
    migrations.migrate(ledger)
    ledger.close()
    if place.effects:
        database = installing.open_database(place.effects, runtime)
        installing.install(database)
        database.close()
