"""Dumping a ledger and reading the dump back, by the programs that people use for it."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import psycopg

from fencepost.ledger.urls import LedgerUrl
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres, program
from testbed.server import require_program

Restore = Callable[[], None]


def dump(url: str, server: Postgres | MariaDB | None, folder: Path) -> Restore:
    """Dump the tables under the URL's prefix, and return what reads them back in place of those that are there."""
    parsed = LedgerUrl.parse(url)
    if isinstance(server, Postgres):
        return _of_postgres(server, parsed.prefix)
    if isinstance(server, MariaDB):
        return _of_mariadb(server, parsed.prefix)
    return _of_file(parsed.path, folder / "backup.db")


def _of_file(path: Path, backup: Path) -> Restore:
    with closing(sqlite3.connect(path)) as original, closing(sqlite3.connect(backup)) as copy:
        original.backup(copy)

    def restore() -> None:
        for rest in ("-wal", "-shm"):
            path.with_name(path.name + rest).unlink(missing_ok=True)
        backup.rename(path)

    return restore


def _of_postgres(server: Postgres, prefix: str) -> Restore:
    with psycopg.connect(server.url) as connection:
        query = "SELECT tablename FROM pg_tables WHERE tablename LIKE %s"
        tables = [row[0] for row in connection.execute(query, (prefix.replace("_", r"\_") + "%",))]
    chosen = [f"--table={name}" for name in tables]
    script = _run([program("pg_dump"), "--clean", "--if-exists", *chosen, server.url])
    return lambda: _read_back([program("psql"), "--quiet", "--single-transaction", server.url], script)


def _of_mariadb(server: MariaDB, prefix: str) -> Restore:
    place = ["--no-defaults", "-uroot", f"--host={server.host}", f"--port={server.port}"]
    with server.client() as client, client.cursor() as cursor:
        cursor.execute("SHOW TABLES LIKE %s", (prefix.replace("_", r"\_") + "%",))
        tables = [row[0] for row in cursor.fetchall()]
    script = _run([require_program("mariadb-dump"), *place, "fencepost", *tables])
    return lambda: _read_back([require_program("mariadb"), *place, "fencepost"], script)


def _run(command: Sequence[str | Path]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def _read_back(command: Sequence[str | Path], script: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, input=script, timeout=60)
