"""What do the logs of runs cost? Runs on worker processes with logs kept, side by side with logs switched off.

    python bench/logs.py [--limit 5000] [--rounds 3]

On a private PostgreSQL as shipped, in one run, in turns: one node with ``FENCEPOST_LOGS=off``, and one with it on. A
ratio is *on* over *off* of the same round, and what is printed is the median of the rounds.

- *silent*: runs that print nothing.
- *line*: runs that print one line each. The node's own output goes to /dev/null.
- *statements*: a job that prints 10,000 lines a second, and the statements that write or remove chunks of logs
  meanwhile, per second. A trigger of the server counts them.

Targets: silent and line ≥ 0.9; statements ≤ 2 a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

from stores import in_project_environment

in_project_environment()

import nodes  # noqa: E402

from fencepost.core.runs import Requested  # noqa: E402
from fencepost.ledger import requests  # noqa: E402
from fencepost.ledger.ledger import Ledger  # noqa: E402
from testbed.postgres import Postgres  # noqa: E402

TARGET = 0.9
STATEMENTS_PER_S = 2.0
LINES_PER_S, SECONDS = 10_000, 10
DEADLINE_S = 600
APP = "logging_jobs:app"
JOBS = {"silent": "noop", "line": "line"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}", flush=True)
    missed = []
    with Postgres() as server:
        ledger = nodes.opened(server.url)
        for name, job in JOBS.items():
            ratio = compared(ledger, server.url, job, options)
            print(f"{name:8} {ratio:.2f} of the runs/s without logs", flush=True)
            missed += [f"{name} {ratio:.2f}"] if ratio < TARGET else []
        per_s = statements_per_s(ledger, server.url)
        print(f"{LINES_PER_S:,} lines/s cost {per_s:.2f} statements/s", flush=True)
        missed += [f"{per_s:.2f} statements/s"] if per_s > STATEMENTS_PER_S else []
        ledger.close()
    if missed:
        sys.exit("short of the target: " + "; ".join(missed))


def compared(ledger: Ledger, url: str, job: str, options: argparse.Namespace) -> float:
    """Return the median ratio of runs per second with logs to those without."""
    ratios = []
    for turn in range(options.rounds):
        order = ("off", "on") if turn % 2 == 0 else ("on", "off")
        rates = {logs: rate(ledger, url, job, logs, options.limit) for logs in order}
        ratios.append(rates["on"] / rates["off"])
        print(f"round {turn + 1}: {job} {rates['on']:,.0f}/s with logs, {rates['off']:,.0f}/s without", flush=True)
    return statistics.median(ratios)


def rate(ledger: Ledger, url: str, job: str, logs: str, runs: int) -> float:
    """Return the runs per second of one node."""
    nodes.empty(url)
    nodes.ask(url, "TRUNCATE fencepost_log_chunk")
    with nodes.nodes(1, APP, [url], "--workers", "2", variables={"FENCEPOST_LOGS": logs}) as [node]:
        time.sleep(1.5)  # the workers have loaded the application by then
        node.pause()
        for first in range(0, runs, 1000):
            requests.enqueue(ledger, [Requested(job, "manual")] * min(1000, runs - first))
        nodes.ask(url, "VACUUM ANALYZE fencepost_run")
        node.resume()
        nodes.until(lambda: nodes.is_done(url), DEADLINE_S, f"{runs} runs are done")
    measured = runs / nodes.check(url, runs).seconds
    [(chunks,)] = nodes.ask(url, "SELECT count(*) FROM fencepost_log_chunk")
    expected = runs if job == "line" and logs == "on" else 0
    if chunks != expected:
        raise RuntimeError(f"{runs} runs of {job} with logs {logs} have {chunks} chunks of logs instead of {expected}")
    return measured


def statements_per_s(ledger: Ledger, url: str) -> float:
    """Return how many statements wrote or removed chunks, per second of a job that prints much."""
    nodes.empty(url)
    nodes.ask(url, "TRUNCATE fencepost_log_chunk")
    params = f'{{"per_s": {LINES_PER_S}, "seconds": {SECONDS}}}'
    nodes.ask(url, _COUNT)
    nodes.ask(url, "TRUNCATE log_statements")
    with nodes.nodes(1, APP, [url], "--workers", "2"):
        requests.enqueue(ledger, [Requested("lines", "manual", params=params)])
        nodes.until(lambda: nodes.is_done(url), DEADLINE_S, "the job has ended")
    [(count,)] = nodes.ask(url, "SELECT count(*) FROM log_statements")
    [(took_s,)] = nodes.ask(url, "SELECT (max(ended_at) - min(started_at)) / 1e6 FROM fencepost_run")
    return float(count) / float(took_s)


_COUNT = """
CREATE TABLE IF NOT EXISTS log_statements (at timestamptz DEFAULT clock_timestamp());
CREATE OR REPLACE FUNCTION count_log_statement() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO log_statements DEFAULT VALUES; RETURN NULL; END $$;
CREATE OR REPLACE TRIGGER count_log_statements AFTER INSERT OR UPDATE OR DELETE ON fencepost_log_chunk
FOR EACH STATEMENT EXECUTE FUNCTION count_log_statement();
"""


if __name__ == "__main__":
    main()
