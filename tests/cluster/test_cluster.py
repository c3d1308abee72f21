"""Real nodes in real processes: a sleeper's write is refused, C code loses no lease, web workers share the work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost.ledger.ledger import open_ledger
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime
from tests.cluster.nodes import ROOT, command, nodes, rarely

TTL_S = 3.0


def make_effects(url: str) -> None:
    ledger = open_ledger(url, ThreadedRuntime())
    ledger.write(lambda c: c.execute("DROP TABLE IF EXISTS effect"))
    ledger.write(lambda c: c.execute("CREATE TABLE effect (run_id BIGINT, attempt INT, token BIGINT, due_at BIGINT)"))
    ledger.close()


def effects(url: str) -> list[tuple[int, int, int]]:
    ledger = open_ledger(url, ThreadedRuntime())
    try:
        return ledger.read(lambda c: _all(c, "SELECT run_id, attempt, token FROM effect ORDER BY token"))
    finally:
        ledger.close()


def _all(cursor: Any, sql: str) -> list[tuple[int, int, int]]:
    cursor.execute(sql)
    return [tuple(row) for row in cursor.fetchall()]


# Not on SQLite: whoever stands still within a transaction keeps every other writer out until it goes on.
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["postgresql", "mysql"], indirect=True)
def test_a_node_stopped_in_its_transaction_is_succeeded_and_refused(ledger_url: str, tmp_path: Path) -> None:
    make_effects(ledger_url)
    still = tmp_path / "still"
    env = {"STAND_STILL": str(still)}
    with nodes(2, ledger_url, "--ttl", f"{TTL_S}s", "--threads", folder=tmp_path, env=env) as made:
        run_id = command(ledger_url, "trigger", "settle")["run"]
        until(still.exists, 30, "the first attempt is inside its transaction")
        sleeper = _node_of(ledger_url, run_id, made)
        sleeper.signal(signal.SIGSTOP)
        second = until(rarely(lambda: _has(ledger_url, run_id, "succeeded")), 30, "another node has done it")
        still.unlink(missing_ok=True)
        sleeper.signal(signal.SIGCONT)
        until(lambda: "node lost" in sleeper.log, 30, "the sleeper knows that it was lost")
        until(lambda: "run lost" in sleeper.log or "run refused" in sleeper.log, 30, "and what it did is refused")
    shown = command(ledger_url, "show", str(run_id))
    *before, last = [each["outcome"] for each in shown["ended_attempts"]]
    assert (set(before), last) == ({"lost"}, "succeeded")
    assert [row[1:] for row in effects(ledger_url)] == [(len(before) + 1, second["token"])]


def _has(url: str, run_id: int, state: str) -> dict[str, Any] | None:
    row = command(url, "show", str(run_id))
    return row if row["state"] == state else None


def _node_of(url: str, run_id: int, made: list[Any]) -> Any:
    name = command(url, "show", str(run_id))["node_name"]
    pid = int(name.split(":")[1])
    return next(node for node in made if node.pid == pid)


# A worker process holds the interpreter, and its node, which asks the ledger, does not notice: any ledger will do.
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_c_code_that_holds_the_interpreter_does_not_lose_its_lease(ledger_url: str, tmp_path: Path) -> None:
    ttl_s = 2 * TTL_S  # a machine that is busy with other tests may keep a supervisor waiting, too
    seconds = 2 * ttl_s
    with nodes(2, ledger_url, "--ttl", f"{ttl_s}s", "--workers", "1", folder=tmp_path):
        run_id = command(ledger_url, "trigger", "hog", "-p", f"seconds={int(seconds)}")["run"]
        until(rarely(lambda: _has(ledger_url, run_id, "succeeded")), 60, "it ended well")
    shown = command(ledger_url, "show", str(run_id))
    assert (shown["attempts"], shown["crashes"]) == (1, 0)


GUNICORN_APP = """
import logging
logging.disable(logging.CRITICAL)
from fencepost import App, every
jobs = App(ttl="15s", name="web")

@jobs.job(every("1s"))
def tick(run):
    pass

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"ok"]
"""
GUNICORN_CONFIG = """
bind = "127.0.0.1:0"
workers = 4
preload_app = True

def post_worker_init(worker):
    import web
    web.jobs.start()
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["postgresql", "mysql"], indirect=True)
def test_four_preloaded_web_workers_run_each_tick_once(ledger_url: str, tmp_path: Path) -> None:
    (tmp_path / "web.py").write_text(GUNICORN_APP)
    (tmp_path / "conf.py").write_text(GUNICORN_CONFIG)
    env = {**os.environ, "FENCEPOST_URL": ledger_url, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "web.log").open("wb") as log:
        web = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "-c", "conf.py", "web:app"],
            cwd=tmp_path,
            env=env,
            stdout=log,
            stderr=log,
        )
    try:
        until(rarely(lambda: len(_nodes(ledger_url)) == 4), 60, "four nodes take part")
        until(rarely(lambda: len(_done(ledger_url)) >= 5), 60, "ticks, which may come to be twice")
    finally:
        web.terminate()
        web.wait(30)
    rows = _done(ledger_url)
    dues = [row["due_at"] for row in rows]
    assert len(dues) == len(set(dues))
    assert {row["attempts"] for row in rows} == {1}


def _done(url: str) -> list[dict[str, Any]]:
    return [row for row in command(url, "runs", "--limit", "1000") if row["state"] == "succeeded"]


def _nodes(url: str) -> list[dict[str, Any]]:
    try:
        return command(url, "nodes")
    except AssertionError:  # not yet migrated, or busy
        return []
