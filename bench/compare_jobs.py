"""The application of `compare_side.py`: what both commits have to do. It uses nothing but the public interface.

FENCEPOST_URL names the ledger, COMPARE_PREFIX how the names of this side's tables begin, COMPARE_SOURCE the folder that
this side's code must come from: nodes and worker processes import this module too, and so all of them check it.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import create_engine

import fencepost
from fencepost import App, Run
from fencepost.bulk import copy, keyset

SOURCE = Path(os.environ["COMPARE_SOURCE"])
URL = os.environ["FENCEPOST_URL"]
PREFIX = os.environ["COMPARE_PREFIX"]
PLACE = URL.partition("?")[0]  # without the options that are Fencepost's
CHUNK = 2_000
QUERY = "SELECT id, amount FROM source WHERE id <= :rows AND id > :after ORDER BY id LIMIT :limit"

if not Path(fencepost.__file__).is_relative_to(SOURCE):
    raise ImportError(f"this side's code is in {SOURCE}, but {fencepost.__file__} was imported")

app = App()
engine = create_engine(PLACE.replace("postgresql:", "postgresql+psycopg:"))
figures: queue.SimpleQueue[float | Exception] = queue.SimpleQueue()


def rate(act: Callable[[], None], seconds: float) -> float:
    """Return how often a second it can be done, one after the other."""
    act()
    count, began_at = 0, time.perf_counter()
    while (spent := time.perf_counter() - began_at) < seconds:
        act()
        count += 1
    return count / spent


@app.job
def noop() -> None:
    """Do nothing."""


@app.job(isolation="read committed")
def fenced(run: Run, seconds: float) -> None:
    """Commit fenced transactions with one insert each for this long, and send the rate to the parent process."""
    try:
        with psycopg.connect(PLACE, autocommit=True) as connection:

            def transaction() -> None:
                with run.transaction(connection) as tx:
                    tx.execute(f"INSERT INTO {PREFIX}effect (id, amount) VALUES (1, 1)")

            figures.put(rate(transaction, seconds))
    except Exception as error:
        figures.put(error)
        raise


@app.bulk(chunk=CHUNK, target=engine, isolation="read committed", writer=copy(f"{PREFIX}effect", ("id", "amount")))
class Settle:
    """Reads, adds one, writes."""

    read = keyset(QUERY, key="id")

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def process(self, row: Any) -> tuple[int, int]:
        return row.id, row.amount + 1
