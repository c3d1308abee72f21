"""Ledgers for programs that are started by hand: a server of one kind, and fresh tables on it for each use."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from fencepost.ledger import migrations
from fencepost.ledger.ledger import open_ledger
from fencepost.threaded import ThreadedRuntime
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres

KINDS = ("sqlite", "postgresql", "mysql")


@contextmanager
def fresh_ledgers(kind: str) -> Iterator[Callable[[], str]]:
    """Yield what returns the URL of a ledger with empty tables, another one with each call."""
    numbers = count(1)
    if kind == "sqlite":
        place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(dir=place) as folder:
            yield lambda: _migrated(f"sqlite:///{folder}/{next(numbers)}.db")
        return
    settings = {"fsync": "off"} if kind == "postgresql" else {"innodb-flush-log-at-trx-commit": "0"}
    with Postgres(settings=settings) if kind == "postgresql" else MariaDB(settings=settings) as server:
        yield lambda: _migrated(f"{server.url}?prefix=fresh{next(numbers)}_")


def _migrated(url: str) -> str:
    made = open_ledger(url, ThreadedRuntime())
    migrations.migrate(made)
    made.close()
    return url
