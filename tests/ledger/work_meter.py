"""How much a call makes its database do, counted by the database itself and not by a clock.

PostgreSQL: rows that the plans' scans met, as they were really executed (auto_explain). MariaDB: rows that the storage
engine was asked for. SQLite: instructions of its machine, in tens. Numbers of different databases do not compare.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from fencepost.ledger.connection import LedgerConnection

Call = Callable[[], object]


class Meter(Protocol):
    def work(self, call: Call) -> int:
        """Return the work that `call` makes on the metered connection."""
        ...


@contextmanager
def metered(connection: LedgerConnection) -> Iterator[Meter]:
    kinds: dict[str, type[Any]] = {"postgresql": OnPostgres, "mysql": OnMariaDB, "sqlite": OnSqlite}
    yield kinds[connection.dialect.name](connection)


class OnPostgres:
    """Plans are kept as they are in earnest: the meter only listens."""

    def __init__(self, connection: LedgerConnection) -> None:
        self.plans: list[dict[str, Any]] = []
        with connection.autocommit() as cursor:
            cursor.connection.add_notice_handler(self._hear)  # type: ignore[attr-defined]
            cursor.execute("LOAD 'auto_explain'")
            for name, value in (
                ("auto_explain.log_min_duration", "0"),
                ("auto_explain.log_analyze", "on"),
                ("auto_explain.log_timing", "off"),
                ("auto_explain.log_format", "json"),
                ("auto_explain.log_parameter_max_length", "0"),
                ("client_min_messages", "log"),
            ):
                cursor.execute(f"SET {name} = '{value}'")

    def work(self, call: Call) -> int:
        self.plans.clear()
        call()
        return sum(_met(plan["Plan"]) for plan in self.plans)

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes of the plans of the last call."""
        return [node for plan in self.plans for node in _nodes(plan["Plan"])]

    def _hear(self, notice: Any) -> None:
        _, found, text = (notice.message_primary or "").partition("plan:\n")
        if found:
            self.plans.append(json.loads(text))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _met(plan: dict[str, Any]) -> int:
    """Count the rows that scans of tables returned, and those they threw away."""
    scans = [node for node in _nodes(plan) if node["Node Type"].endswith("Scan") and "Index Name" in node]
    scans += [node for node in _nodes(plan) if node["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")]
    removed = ("Rows Removed by Filter", "Rows Removed by Index Recheck", "Heap Fetches")
    return round(
        sum((node["Actual Rows"] + sum(node.get(name, 0) for name in removed)) * node["Actual Loops"] for node in scans)
    )


class OnMariaDB:
    def __init__(self, connection: LedgerConnection) -> None:
        self._connection = connection

    def work(self, call: Call) -> int:
        before = self._reads()
        call()
        return self._reads() - before

    def _reads(self) -> int:
        with self._connection.autocommit() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            return sum(int(value) for name, value in cursor.fetchall() if "rnd_deleted" not in name)


class OnSqlite:
    def __init__(self, connection: LedgerConnection) -> None:
        self._steps = 0
        with connection.autocommit() as cursor:
            cursor.connection.set_progress_handler(self._step, 10)  # type: ignore[attr-defined]

    def work(self, call: Call) -> int:
        self._steps = 0
        call()
        return self._steps

    def _step(self) -> int:
        self._steps += 1
        return 0
