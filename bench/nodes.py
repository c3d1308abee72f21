"""Nodes as real processes (``fencepost run``), the runs that they are given, and what the ledger says afterwards."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import psycopg

from fencepost.core.runs import Requested
from fencepost.ledger import requests
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.migrations import migrate
from fencepost.threaded import ThreadedRuntime

HERE = Path(__file__).parent
TABLES = ("run", "attempt", "exclusive", "journal", "node", "job", "schedule")
_BATCH = 1_000


# -- SQL, with the driver alone --------------------------------------------------------------------------------------


def ask(url: str, sql: str) -> list[tuple[Any, ...]]:
    """Ask a ledger's database something."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as connection:
            return connection.execute(sql).fetchall()
    with psycopg.connect(plain(url), autocommit=True) as connection:
        cursor: Any = connection.execute(sql)  # type: ignore[call-overload]
        rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
        return rows


def plain(url: str) -> str:
    """Return the URL without the options that are Fencepost's."""
    return url.partition("?")[0]


def until(condition: Callable[[], bool], timeout_s: float, what: str, *, every_s: float = 0.1) -> None:
    """Wait for something, asking now and then."""
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"waited {timeout_s:g} s in vain: {what}")
        time.sleep(every_s)


# -- the ledger ------------------------------------------------------------------------------------------------------


def opened(url: str) -> Ledger:
    """Return the ledger, with its tables made."""
    ledger = open_ledger(url, ThreadedRuntime())
    migrate(ledger)
    return ledger


def empty(url: str) -> None:
    """Remove everything from the ledger's tables."""
    for table in TABLES:
        ask(url, f"DELETE FROM fencepost_{table}" if url.startswith("sqlite:") else f"TRUNCATE fencepost_{table}")


def fill(ledger: Ledger, url: str, runs: int) -> None:
    """Ask for so many runs of `noop`, due now, and let the database come to rest."""
    for first in range(0, runs, _BATCH):
        requests.enqueue(ledger, [Requested("noop", "manual")] * min(_BATCH, runs - first))
    if not url.startswith("sqlite:"):
        ask(url, "VACUUM ANALYZE fencepost_run")
        ask(url, "CHECKPOINT")


def is_done(url: str) -> bool:
    """Whether nothing is left to do."""
    for state in ("queued", "running", "waiting"):
        if ask(url, f"SELECT 1 FROM fencepost_run WHERE state = '{state}' LIMIT 1"):
            return False
    return True


class Checked(NamedTuple):
    """What the ledger says: from the first start to the last end, by its own clock, and who took part."""

    seconds: float
    nodes: int


def check(url: str, runs: int) -> Checked:
    """Hold the ledger to it: every run succeeded at its first attempt, which has one row by the same node and token."""
    [(total, started_at, ended_at)] = ask(url, "SELECT count(*), min(started_at), max(ended_at) FROM fencepost_run")
    [(good,)] = ask(url, _GOOD)
    [(attempts, nodes)] = ask(url, "SELECT count(*), count(DISTINCT node) FROM fencepost_attempt")
    if not total == good == attempts == runs:
        raise RuntimeError(f"{runs} runs were requested: {total} are there, {good} in order, with {attempts} attempts")
    return Checked((ended_at - started_at) / 1e6, nodes)


_GOOD = """
SELECT count(*) FROM fencepost_run r JOIN fencepost_attempt a ON a.run_id = r.id AND a.number = 1
WHERE r.state = 'succeeded' AND r.attempts = 1 AND r.failures = 0 AND r.crashes = 0
  AND a.outcome = 'succeeded' AND a.node = r.node AND a.token = r.token AND a.ended_at >= a.started_at
"""


# -- nodes -----------------------------------------------------------------------------------------------------------


class Node:
    """One ``fencepost run`` on its way."""

    def __init__(
        self,
        app: str,
        url: str,
        *options: str,
        variables: dict[str, str] | None = None,
        output: int | IO[bytes] = subprocess.DEVNULL,
    ) -> None:
        command = Path(sys.executable).parent / "fencepost"
        folders = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": folders, "FENCEPOST_URL": url, **(variables or {})}
        self._process = subprocess.Popen(
            [str(command), "run", app, *options],
            cwd=HERE,
            env=environment,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The process to pause."""
        return self._process.pid

    def pause(self) -> None:
        """Stop it where it stands."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Let it leave in good order."""
        if self._process.poll() is None:
            self.resume()
            self._process.terminate()
        _, errors = self._process.communicate(timeout=60)
        if self._process.returncode:
            raise RuntimeError(f"a node ended with status {self._process.returncode}:\n{errors[-3000:]}")


@contextmanager
def nodes(count: int, app: str, urls: Sequence[str], *options: str, **more: Any) -> Iterator[list[Node]]:
    """Start so many nodes and wait until all have joined; stop them at the end."""
    before = _living(urls[0])
    started = [Node(app, urls[index % len(urls)], *options, **more) for index in range(count)]
    try:
        until(lambda: _living(urls[0]) >= before + count, 60, f"{count} nodes join", every_s=0.05)
        yield started
    finally:
        for node in started:
            node.stop()


def _living(url: str) -> int:
    [(count,)] = ask(url, "SELECT count(*) FROM fencepost_node WHERE left_at IS NULL AND dead_at IS NULL")
    return int(count)
