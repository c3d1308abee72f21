"""What do the logs of runs cost? Runs on worker processes with logs kept, side by side with logs switched off.

    python bench/logs.py [--limit 5000] [--rounds 3]

On a private PostgreSQL as shipped, in one run, in turns: one node with ``FENCEPOST_LOGS=off``, and one with it on. Both
are started once, and each takes runs from a queue of its own: to start a node takes longer than to measure it. A ratio
is *on* over *off* of the same round, and what is printed is the median of the rounds.

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
DEADLINE_S = 120
WORKERS = ("--workers", "2", "--queues")
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
        off = nodes.nodes(1, APP, [server.url], *WORKERS, "off", variables={"FENCEPOST_LOGS": "off"})
        on = nodes.nodes(1, APP, [server.url], *WORKERS, "on", variables={"FENCEPOST_LOGS": "on"})
        with off as [without], on as [with_logs]:
            time.sleep(1.5)  # the workers have loaded the application by then
            started = {"off": without, "on": with_logs}
            for name, job in JOBS.items():
                ratio = compared(ledger, server.url, job, started, options)
                print(f"{name:8} {ratio:.2f} of the runs/s without logs", flush=True)
                missed += [f"{name} {ratio:.2f}"] if ratio < TARGET else []
            per_s = statements_per_s(ledger, server.url)
        print(f"{LINES_PER_S:,} lines/s cost {per_s:.2f} statements/s", flush=True)
        missed += [f"{per_s:.2f} statements/s"] if per_s > STATEMENTS_PER_S else []
        ledger.close()
    if missed:
        sys.exit("short of the target: " + "; ".join(missed))


def compared(ledger: Ledger, url: str, job: str, started: dict[str, nodes.Node], options: argparse.Namespace) -> float:
    """Return the median ratio of runs per second with logs to those without."""
    ratios = []
    for turn in range(options.rounds):
        order = ("off", "on") if turn % 2 == 0 else ("on", "off")
        rates = {logs: rate(ledger, url, job, logs=logs, node=started[logs], runs=options.limit) for logs in order}
        ratios.append(rates["on"] / rates["off"])
        print(f"round {turn + 1}: {job} {rates['on']:,.0f}/s with logs, {rates['off']:,.0f}/s without", flush=True)
    return statistics.median(ratios)


def rate(ledger: Ledger, url: str, job: str, *, logs: str, node: nodes.Node, runs: int) -> float:
    """Return the runs per second of one node."""
    _empty(url)
    node.pause()
    for first in range(0, runs, 1000):
        requests.enqueue(ledger, [Requested(job, "manual", queue=logs)] * min(1000, runs - first))
    nodes.ask(url, "VACUUM ANALYZE fencepost_run")
    node.resume()
    nodes.until(lambda: nodes.is_done(url), DEADLINE_S, f"{runs} runs are done")
    measured = runs / nodes.check(url, runs).seconds
    expected = runs if job == "line" and logs == "on" else 0
    nodes.until(lambda: _chunks(url) >= expected, DEADLINE_S, f"{expected} chunks of logs are written")
    if (chunks := _chunks(url)) != expected:
        raise RuntimeError(f"{runs} runs of {job} with logs {logs} have {chunks} chunks of logs instead of {expected}")
    return measured


def _empty(url: str) -> None:
    """Remove all runs, and nothing that nodes have on record of themselves."""
    nodes.ask(url, "TRUNCATE fencepost_run, fencepost_attempt, fencepost_log_chunk")


def _chunks(url: str) -> int:
    [(count,)] = nodes.ask(url, "SELECT count(*) FROM fencepost_log_chunk")
    return int(count)


def statements_per_s(ledger: Ledger, url: str) -> float:
    """Return how many statements wrote or removed chunks, per second of a job that prints much."""
    _empty(url)
    params = f'{{"per_s": {LINES_PER_S}, "seconds": {SECONDS}}}'
    nodes.ask(url, _COUNT)
    nodes.ask(url, "TRUNCATE log_statements")
    requests.enqueue(ledger, [Requested("lines", "manual", params=params, queue="on")])
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
