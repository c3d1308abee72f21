"""The application that the nodes run. What it is to do it learns from variables, since each worker loads it anew."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from sqlalchemy import text

from fencepost import App, Skip
from fencepost.bulk import keyset
from tests.bulk_chaos import material, planted
from tests.bulk_chaos.records import Recorder

EFFECTS_URL, FOLDER, CHUNK, PLANTED = "BULK_EFFECTS", "BULK_FOLDER", "BULK_CHUNK", "BULK_PLANTED"
JOB, PARTITIONS, SKIP_LIMIT = "settle", 8, 100

_INSERT = f"INSERT INTO {material.EFFECTS} (id, amount, worker, landed_at) VALUES (:id, :amount, :worker, :at)"

app = App()
calls = Recorder(Path(os.environ.get(FOLDER, ".")))
if os.environ.get(PLANTED):
    planted.plant(os.environ[PLANTED])


@app.bulk(
    name=JOB,
    chunk=int(os.environ.get(CHUNK, "500")),
    partitions=PARTITIONS,
    skip_limit=SKIP_LIMIT,
    target=os.environ.get(EFFECTS_URL) or None,
)
class Settle:
    """Leave one effect for each row, but for what is filtered and what fails."""

    read = keyset(f"SELECT id, amount FROM {material.TABLE} WHERE id > :after ORDER BY id LIMIT :limit", key="id")

    def process(self, row: Any) -> tuple[int, int] | None:
        calls.note(row.id)
        if material.is_filtered(row.id):
            return None
        if material.is_poison(row.id):
            raise Skip("it is poison")
        return row.id, row.amount

    def write(self, tx: Any, items: list[tuple[int, int]]) -> None:
        now, pid = time.time_ns() // 1000, os.getpid()
        tx.execute(text(_INSERT), [{"id": key, "amount": amount, "worker": pid, "at": now} for key, amount in items])
