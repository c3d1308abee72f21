"""The application of `bulk.py`: the same bulk job with each writer, and one that computes, in one and two partitions.

Its ledger is the database that FENCEPOST_URL names, and so is what it reads from and writes to.
"""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import create_engine, text

from fencepost import App
from fencepost.bulk import copy, executemany, keyset, unnest

CHUNK = int(os.environ.get("BULK_CHUNK", "2000"))
ROUNDS_PER_ITEM = 400
QUERY = "SELECT id, amount FROM source WHERE id <= :rows AND id > :after ORDER BY id LIMIT :limit"
COLUMNS = ("id", "amount")

app = App()
engine = create_engine(os.environ["FENCEPOST_URL"].replace("postgresql:", "postgresql+psycopg:"))


class Settle:
    """Reads, adds one, writes; and tells at the end what it took in memory."""

    read = keyset(QUERY, key="id")

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def process(self, row: Any) -> tuple[int, int]:
        return row.id, row.amount + 1

    def after(self, run: Any, _: Any) -> None:
        with run.transaction(engine) as tx:
            tx.execute(text("INSERT INTO peak VALUES (:run, :kb)"), {"run": run.id, "kb": peak_kb()})


class Compute(Settle):
    """The same, with something to compute for each row."""

    write = copy("effect", COLUMNS)

    def process(self, row: Any) -> tuple[int, int]:
        total = 0
        for number in range(ROUNDS_PER_ITEM):
            total += row.id * number % 7
        return row.id, row.amount + 1 if total >= 0 else 0


def peak_kb() -> int:
    """Return the most memory that this process ever had (VmHWM)."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def declare(name: str, of: type[Settle], **words: Any) -> None:
    app.bulk(name=name, chunk=CHUNK, target=engine, isolation="read committed", **words)(type(name, (of,), {}))


declare("copy", Settle, writer=copy("effect", COLUMNS))
declare("unnest", Settle, writer=unnest("effect", COLUMNS))
declare("executemany", Settle, writer=executemany("effect", COLUMNS))
declare("one_partition", Compute)
declare("two_partitions", Compute, partitions=2)
