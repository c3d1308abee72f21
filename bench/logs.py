"""What do the logs of runs cost? Runs on worker processes with logs kept, side by side with logs switched off.

    python bench/logs.py [--limit 20000] [--rounds 3] [--output null|pipe]

On a private PostgreSQL as shipped, in one run, in turns: one node with ``FENCEPOST_LOGS=off``, and one with it on. Both
are started once, and each takes runs from a queue of its own: to start a node takes longer than to measure it. A ratio
is *on* over *off* of the same round, and what is printed is the median of the rounds. Beside the runs per second stands
the processor time per run, of the node with its workers and of the server, until all of the log is written: it says
nearly the same on a machine that is busy with something else.

- *silent*: runs that print nothing.
- *line*: runs that print one line each, with logs kept and without.
- *statements*: a job that prints 10,000 lines a second, and the statements that write or remove chunks of logs
  meanwhile, per second. A trigger of the server counts them.

The output of both nodes goes to /dev/null, which is the cheapest there is: without logs, a print costs next to nothing.
With ``--output pipe`` both write into a pipe that another process reads, as a service manager or a container runtime
does. Its processor time is not counted.

Targets: silent and line ≥ 0.9 of the runs per second; statements ≤ 2 a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

from stores import in_project_environment

in_project_environment()

import nodes  # noqa: E402
import processor_time  # noqa: E402

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


class Cost(NamedTuple):
    """What runs took: how many a second, and the processor time of each in µs, of the node and of the server."""

    per_s: float
    node_us: float
    server_us: float

    @property
    def us(self) -> float:
        return self.node_us + self.server_us


class Measuring(NamedTuple):
    """The database, and the nodes that are compared."""

    ledger: Ledger
    url: str
    server_pid: int
    started: dict[str, nodes.Node]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", choices=["null", "pipe"], default="null")
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}", flush=True)
    missed = []
    with Postgres() as server, _output(options.output) as output:
        ledger = nodes.opened(server.url)
        off = nodes.nodes(1, APP, [server.url], *WORKERS, "off", variables={"FENCEPOST_LOGS": "off"}, output=output)
        on = nodes.nodes(1, APP, [server.url], *WORKERS, "on", variables={"FENCEPOST_LOGS": "on"}, output=output)
        with off as [without], on as [with_logs]:
            time.sleep(1.5)  # the workers have loaded the application by then
            pid = int((server.data / "postmaster.pid").read_text().split()[0])
            measuring = Measuring(ledger, server.url, pid, {"off": without, "on": with_logs})
            for name, job in JOBS.items():
                ratio = compared(measuring, job, options)
                print(f"{name:8} {ratio:.2f} of the runs/s without logs", flush=True)
                missed += [f"{name} {ratio:.2f}"] if ratio < TARGET else []
            per_s = statements_per_s(ledger, server.url)
        print(f"{LINES_PER_S:,} lines/s cost {per_s:.2f} statements/s", flush=True)
        missed += [f"{per_s:.2f} statements/s"] if per_s > STATEMENTS_PER_S else []
        ledger.close()
    if missed:
        sys.exit("short of the target: " + "; ".join(missed))


@contextmanager
def _output(kind: str) -> Iterator[int | IO[bytes]]:
    """Yield what the nodes write to."""
    if kind == "null":
        yield subprocess.DEVNULL
        return
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reading:
        assert reading.stdin is not None
        yield reading.stdin


def compared(measuring: Measuring, job: str, options: argparse.Namespace) -> float:
    """Return the median ratio of runs per second with logs to those without."""
    ratios: list[float] = []
    all_costs: dict[str, list[Cost]] = {"off": [], "on": []}
    for turn in range(options.rounds):
        order = ("off", "on") if turn % 2 == 0 else ("on", "off")
        costs = {logs: cost(measuring, job, logs=logs, runs=options.limit) for logs in order}
        for logs, each in costs.items():
            all_costs[logs].append(each)
        ratios.append(costs["on"].per_s / costs["off"].per_s)
        print(f"round {turn + 1}: {job}, {_row('with', costs['on'])}; {_row('without', costs['off'])}", flush=True)
    on, off = ([statistics.median(each) for each in zip(*all_costs[logs], strict=True)] for logs in ("on", "off"))
    more = on[1] - off[1], on[2] - off[2]
    print(
        f"{job}: logs take {more[0]:.1f} µs more of the node and {more[1]:.1f} µs more of the server per run",
        flush=True,
    )
    return statistics.median(ratios)


def _row(what: str, cost: Cost) -> str:
    return f"{what} logs {cost.per_s:,.0f}/s, {cost.us:.0f} µs ({cost.node_us:.0f} + {cost.server_us:.0f})"


def cost(measuring: Measuring, job: str, *, logs: str, runs: int) -> Cost:
    """Return what it takes one node to execute so many runs, and to write their logs."""
    url, node = measuring.url, measuring.started[logs]
    _empty(url)
    node.pause()
    for first in range(0, runs, 1000):
        requests.enqueue(measuring.ledger, [Requested(job, "manual", queue=logs)] * min(1000, runs - first))
    nodes.ask(url, "VACUUM ANALYZE fencepost_run")
    before = [processor_time.of_tree(pid) for pid in (node.pid, measuring.server_pid)]
    node.resume()
    nodes.until(lambda: nodes.is_done(url), DEADLINE_S, f"{runs} runs are done")
    per_s = runs / nodes.check(url, runs).seconds
    expected = runs if job == "line" and logs == "on" else 0
    nodes.until(lambda: _chunks(url) >= expected, DEADLINE_S, f"{expected} chunks of logs are written")
    after = [processor_time.of_tree(pid) for pid in (node.pid, measuring.server_pid)]
    if (chunks := _chunks(url)) != expected:
        raise RuntimeError(f"{runs} runs of {job} with logs {logs} have {chunks} chunks of logs instead of {expected}")
    return Cost(per_s, *((end - start) / runs * 1e6 for start, end in zip(before, after, strict=True)))


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
