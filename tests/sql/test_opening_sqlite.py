"""Opening a SQLite file while others do the same."""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fencepost.sql import sqlite
from testbed.wait import until


def test_file_that_is_new_is_waited_for_while_another_process_sets_it_up(tmp_path: Path) -> None:
    """SQLite refuses the switch to WAL at once while somebody writes, whatever the timeout."""
    path = tmp_path / "new.db"
    first = sqlite3.connect(path, isolation_level=None)
    first.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(sqlite.opened, path, 60.0)
        until(lambda: second.done() or _times_open(path) > 1, what="the file is opened a second time")
        first.execute("COMMIT")
        connection = second.result(60)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    first.close()


def test_file_that_somebody_keeps_for_themselves_is_waited_for_no_longer_than_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    first = sqlite3.connect(path, isolation_level=None)
    first.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        sqlite.opened(path, 0.05)
    first.close()


def _times_open(path: Path) -> int:
    links = Path("/proc/self/fd")
    return sum(os.path.realpath(link) == str(path) for link in links.iterdir())
