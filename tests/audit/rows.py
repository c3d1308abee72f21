"""All rows of the databases in which an act may change something: read, compared, and put back.

Putting rows back costs a fraction of making a ledger anew, so thousands of plays share one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy import Connection, Engine, inspect

from fencepost.core.urls import StoreUrl
from fencepost.leases.stores.sqlite import lease_file
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.urls import LedgerUrl

Row = tuple[Any, ...]
_OF_THE_AUDIT = frozenset({"audit", "audit_head"})
_CHANGE_BY_THEMSELVES = frozenset({"session"})  # of a lease store: renewed by threads of their own
_WRITTEN_BY_LOOKS = {"identity": {"nameless_until"}}  # noted by whoever needs the names of effects, also to look
_BEGUN = "rename begun"  # a row that says, like an entry, that an act was begun: of a table that is there for others


class Entry(NamedTuple):
    """An entry of the audit."""

    n: int
    act: str
    outcome: str


class Content(NamedTuple):
    """What is in the databases, by number of the database and name of the table without its prefix."""

    rows: dict[tuple[int, str], list[Row]]
    columns: dict[tuple[int, str], Sequence[str]]

    @property
    def entries(self) -> list[Entry]:
        """The entries of the audit, in their order."""
        at = self.columns[0, "audit"].index("entry")
        said = [json.loads(row[at]) for row in self.rows[0, "audit"]]
        return sorted(Entry(each["n"], each["act"], each["outcome"]) for each in said)

    @property
    def _pruned(self) -> list[Any]:
        at = self.columns[0, "audit_head"].index("floor_n")
        return [row[at] for row in self.rows[0, "audit_head"]]

    def changed(self, before: Content) -> set[str]:
        """Return the tables with other rows than before; of the audit only ``pruned``, if it begins later now."""
        found = {table for (place, table), rows in self.rows.items() if before.differs(place, table, rows)}
        return found | ({"pruned"} if self._pruned != before._pruned else set())

    def differs(self, place: int, table: str, rows: list[Row]) -> bool:
        """Whether a table has other rows here, but for what says nothing about an act."""
        if table in _OF_THE_AUDIT | _CHANGE_BY_THEMSELVES or self.rows[place, table] == rows:
            return False
        if table == "acknowledged":
            return [row for row in self.rows[place, table] if _BEGUN not in row] != [r for r in rows if _BEGUN not in r]
        skipped = {self.columns[place, table].index(name) for name in _WRITTEN_BY_LOOKS.get(table, ())}
        return _sorted(self.rows[place, table], skipped) != _sorted(rows, skipped)


def _sorted(rows: list[Row], skipped: set[int]) -> list[str]:
    return sorted(repr([value for at, value in enumerate(row) if at not in skipped]) for row in rows)


class Databases:
    """A ledger's database, the file of its leases if there is one, and a database of effects if there is one."""

    def __init__(self, ledger: Ledger, effects: str | None = None) -> None:
        """Read `ledger`, and the database whose URL is `effects`. The tables of leases have to be there."""
        urls = [ledger.url.text] + ([] if effects is None else [effects])
        if ledger.url.is_file:
            urls.append(f"sqlite:///{lease_file(StoreUrl.parse(ledger.url.lease_url()))}")
        self._engines = [sqlalchemy.create_engine(LedgerUrl.parse(url).sqlalchemy()) for url in urls]
        self._prefix = ledger.url.prefix
        self._names = [self._tables_of(engine) for engine in self._engines]

    def _tables_of(self, engine: Engine) -> list[str]:
        names = [name for name in inspect(engine).get_table_names() if name.startswith(self._prefix)]
        return sorted(name.removeprefix(self._prefix) for name in names)

    def read(self) -> Content:
        """Read everything."""
        content = Content({}, {})
        for place, engine in enumerate(self._engines):
            with engine.begin() as connection:
                for name in self._names[place]:
                    result = connection.exec_driver_sql(f"SELECT * FROM {self._prefix}{name}")
                    content.columns[place, name] = list(result.keys())
                    content.rows[place, name] = [tuple(row) for row in result]
        return content

    def put_back(self, wanted: Content, now: Content | None = None) -> None:
        """Let everything be as it was; `now` is how it is."""
        there = now or self.read()
        for place, engine in enumerate(self._engines):
            with engine.begin() as connection:
                for name in self._names[place]:
                    if there.rows[place, name] != wanted.rows[place, name]:
                        self._replace(connection, name, wanted.rows[place, name])

    def _replace(self, connection: Connection, name: str, rows: list[Row]) -> None:
        table = f"{self._prefix}{name}"
        connection.exec_driver_sql(f"DELETE FROM {table}")
        if rows:
            mark = "?" if connection.dialect.name == "sqlite" else "%s"
            marks = ", ".join([mark] * len(rows[0]))
            connection.exec_driver_sql(f"INSERT INTO {table} VALUES ({marks})", rows)

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()
