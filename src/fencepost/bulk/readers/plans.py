"""Query plans: a warning if each page reads or sorts the whole table, and estimates of the number of rows.

A small table is read as a whole even if there is an index. So what matters is whether there is an index that *could* be
used. PostgreSQL is asked for its plan with sequential scans and sorts disabled. MariaDB and MySQL report the possible
keys. SQLite always uses a suitable index.

**Promises.** Nothing here raises. If there is no plan, there is no estimate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.bulk.readers.row_shape import position_of
from fencepost.bulk.reading import kind_of
from fencepost.bulk.sql import bare, outermost, spelled
from fencepost.core.positions import unpacked

if TYPE_CHECKING:
    from fencepost.bulk.reader import Surroundings
    from fencepost.bulk.readers.page_query import PageQuery

MANY_ROWS = 10_000  # MySQL reads smaller tables as a whole even if an index would serve
_PAGE = 1000  # the plan of a database depends on the limit: about that of a usual chunk
_NAME = r'(?:["`]?[\w$]+["`]?\.){0,2}["`]?[\w$]+["`]?'
_FIRST_TABLE = re.compile(rf"\bfrom\s+(?P<table>{_NAME})", re.IGNORECASE)
_ABOVE_A_SORT = ("Limit", "Gather", "Gather Merge", "Result", "Subquery Scan", "LockRows", "Unique", "WindowAgg")

Ask = Callable[[str], Sequence[Mapping[str, Any]]]
"""Executes a statement with the values of a page, and returns its rows."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """The table of a query's key, with its alias in the query, its name, and the columns of the key."""

    called: str
    table: str
    columns: tuple[str, ...]

    @staticmethod
    def of(sql: str, columns: tuple[str, ...]) -> Keyed:
        """Find the table by the prefix of the key's column, or else take the first table of the query."""
        names = tuple(each.rpartition(".")[2].strip() for each in columns)
        called = columns[0].rpartition(".")[0].strip()
        plain = bare(sql)
        if called:
            named = rf"(?:\bfrom|\bjoin|,)\s+(?P<table>{_NAME})\s+(?:as\s+)?{re.escape(called)}(?![\w$])"
            found = re.search(named, plain, re.IGNORECASE)
            return Keyed(_plain(called), found["table"] if found else called, names)
        first = _FIRST_TABLE.search(outermost(sql))
        table = first["table"] if first else "the table"
        behind = re.match(r"\s+(?:as\s+)?([\w$]+)", plain[first.end() :], re.IGNORECASE) if first else None
        word = behind[1] if behind else ""
        is_called = word and word.lower() not in ("where", "join", "left", "inner", "cross", "order", "group", "limit")
        return Keyed(word if is_called else _plain(table), table, names)

    def is_called(self, name: str | None) -> bool:
        """Whether a table name in a plan means this table."""
        return name is not None and name.lower() == self.called.lower()

    @property
    def index(self) -> str:
        """The statement that creates the missing index."""
        columns = [_plain(each) for each in self.columns]
        name = "_".join([_plain(self.table), *columns, "key"])
        return f"CREATE UNIQUE INDEX {name} ON {self.table} ({', '.join(self.columns)})"


def _plain(name: str) -> str:
    return name.rpartition(".")[2].strip('"` ')


def warn_of_slow_pages(pages: PageQuery, first: Any, surroundings: Surroundings) -> None:
    """Check the plan of a later page, and warn if it reads or sorts the whole table."""
    kind = kind_of(surroundings.source)
    sql = pages.page(pages.bounds(kind, after=True, upto=False))
    after = dict(zip(pages.marks("after"), unpacked(position_of(first)), strict=True))
    values = {"part": 0, "parts": 1, **surroundings.values, **after, "limit": _PAGE}
    warn_of_slow_plan(sql, values, Keyed.of(sql, pages.columns), surroundings)


def warn_of_slow_plan(sql: str, values: Mapping[str, Any], keyed: Keyed, surroundings: Surroundings) -> None:
    """Check the plan of a page, and warn if it reads or sorts the whole table."""
    try:
        found = _objections(sql, values, keyed, surroundings.source)
    except Exception as error:  # noqa: BLE001 - an invalid query fails with its own error when it is executed
        surroundings.warn(f"the plan of the query is not available: {type(error).__name__}")
        return
    if found:
        surroundings.warn(
            f"each page of the query {' and '.join(found)}, because there is no index with the order of "
            f"{', '.join(keyed.columns)}; create one: {keyed.index}"
        )


def estimated_rows(sql: str, surroundings: Surroundings) -> int | None:
    """Return the database's estimate of the number of rows; None if it has none."""
    values = {"part": 0, "parts": 1, **surroundings.values}
    try:
        if kind_of(surroundings.source) == "postgresql":
            return int(_postgresql_plan(_asking(surroundings.source, values), sql)["Plan Rows"])
        if kind_of(surroundings.source) == "mysql":
            lines = _asking(surroundings.source, values)(f"EXPLAIN {sql}")
            return int(lines[0]["rows"]) if len(lines) == 1 else None
    except Exception:  # noqa: BLE001 - an estimate is optional
        return None
    return None


def _objections(sql: str, values: Mapping[str, Any], keyed: Keyed, engine: Any) -> list[str]:
    kind = kind_of(engine)
    ask = _asking(engine, values)
    if kind == "postgresql":
        strict = _asking(engine, values, "SET LOCAL enable_seqscan = off", "SET LOCAL enable_sort = off")
        return _of_postgresql(_postgresql_plan(strict, sql), keyed)
    if kind == "mysql":
        return _of_mysql(ask(f"EXPLAIN {sql}"), keyed)
    return _of_sqlite(ask(f"EXPLAIN QUERY PLAN {sql}"), keyed)


def _asking(engine: Any, values: Mapping[str, Any], *before: str) -> Ask:
    def ask(sql: str) -> Sequence[Mapping[str, Any]]:
        statement = spelled(sql, kind_of(engine))
        with engine.connect() as connection:  # the settings are rolled back at the end
            for each in before:
                connection.exec_driver_sql(each)
            rows = connection.exec_driver_sql(statement.sql, statement.values(values)).mappings()
            return [dict(row) for row in rows]

    return ask


# -- the plans of each database ----------------------------------------------------------------------------------------


def _postgresql_plan(ask: Ask, sql: str) -> dict[str, Any]:
    (row,) = ask(f"EXPLAIN (FORMAT JSON) {sql}")
    (plan,) = row.values()
    return dict((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])


def _of_postgresql(plan: dict[str, Any], keyed: Keyed) -> list[str]:
    found = []
    if any(node["Node Type"] == "Seq Scan" and keyed.is_called(node.get("Alias")) for node in _nodes(plan)):
        found.append(f"reads all of {keyed.table}")
    top = plan
    while top["Node Type"] in _ABOVE_A_SORT and top.get("Plans"):
        top = top["Plans"][0]
    if top["Node Type"] == "Sort":
        found.append("sorts all of its rows")
    return found


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _nodes(each)


def _of_mysql(lines: Sequence[Mapping[str, Any]], keyed: Keyed) -> list[str]:
    found = []
    for line in lines:
        matters = line["possible_keys"] is None or int(line["rows"] or 0) >= MANY_ROWS
        if line["type"] == "ALL" and keyed.is_called(line["table"]) and matters:
            found.append(f"reads all of {keyed.table}")
        if "Using filesort" in str(line["Extra"]) and matters:
            found.append("sorts all of its rows")
    return found


def _of_sqlite(lines: Sequence[Mapping[str, Any]], keyed: Keyed) -> list[str]:
    found = []
    for line in lines:
        words = str(line["detail"]).split()
        if words[0] == "SCAN" and keyed.is_called(words[-1 if words[-2:-1] == ["AS"] else 1]):
            found.append(f"reads all of {keyed.table}")
        if words[:5] == ["USE", "TEMP", "B-TREE", "FOR", "ORDER"]:
            found.append("sorts all of its rows")
    return found
