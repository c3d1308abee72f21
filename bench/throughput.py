"""How many runs a second? No-op runs that are due now, each recorded finished with its attempt, beside a bare loop.

    python bench/throughput.py [--json] [--limit 50000] [--rounds 5] [--peers-python PATH]

On a private PostgreSQL as shipped (fsync and synchronous_commit on), in one run, in turns:

- *bare*: the hand-written loop of `bare_runs.py`, before and after each of ours. A ratio is ours over the mean of these
  two, and what is printed is the median of the rounds: this machine may be noisy, but it is noisy for all of them.
- *thread*: one node, ``fencepost run --threads``. *process*: one node with worker processes, ``fencepost run``.
- *two nodes*: two of the former, and their rate over that of one in the same round.
- *sqlite*: one node on threads, on a SQLite file.
- Others (`peers.py`), once each, if they can be imported.

Nodes are real processes. They have joined, and are paused, when the runs are made; then all are let go at once. Our
rate is the runs over the time from the first `started_at` to the last `ended_at` by the ledger's clock; `wall_s` is the
same seen from here, with waking up and noticing the end, and must not be shorter. Afterwards the ledger is held to it:
every run succeeded, at its first attempt, which has one row, by the same node under the same token.

*Python cost* is the processor time of a whole node on threads per run, less what it spent inside the driver's
`execute`, `executemany` and fetches. The driver's methods are wrapped for that, in a process of its own, and the clocks
are `time.process_time` and `time.thread_time`, read in the first and the last run. So it has everything that is
Fencepost's, all its threads, and the interpreter's switching between them; waiting costs nothing.

Targets: thread ≥ 0.5 of the bare loop, process ≥ 0.35, two nodes ≥ 1.3 × one, SQLite ≥ 1,500/s, Python ≤ 20 µs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stores import in_project_environment

in_project_environment()

import bare_runs  # noqa: E402
import nodes  # noqa: E402

from testbed.postgres import Postgres  # noqa: E402

HERE = Path(__file__).parent
CONTESTANTS = {"thread": (1, "--threads"), "process": (1,), "two_nodes": (2, "--threads")}
TARGETS = {"thread": 0.5, "process": 0.35}
TWO_NODES = 1.3
SQLITE_PER_S = 1_500
PYTHON_US = 20
DEADLINE_S = 600


def main() -> None:
    options = _options()
    load = round(os.getloadavg()[0], 1)
    if load > 0.5:
        _say(
            options,
            f"others are at work here (load {load}): that slows the bare loop's many small steps more than ours",
        )
    with Postgres() as server:
        postgres = on_postgres(server.url, options)
        postgres["python_us_per_run"] = python_cost(server.url, options)
    result = {"limit": options.limit, "load_before": load, "postgres": postgres}
    if "sqlite" in options.only:
        result["sqlite"] = on_sqlite(options)
    result["peers"] = {name: peer(name, options) for name in peers_found(options)}
    missed = shortfalls(result)
    if options.json:
        print(json.dumps({**result, "missed": missed}))
    if missed:
        sys.exit("short of the target: " + "; ".join(missed))


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


def on_postgres(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Let bare and ours take turns."""
    rates: dict[str, list[float]] = {name: [] for name in options.only if name in CONTESTANTS}
    walls: dict[str, list[float]] = {name: [] for name in rates}
    ratios: dict[str, list[float]] = {name: [] for name in rates}
    bares: list[float] = []
    ledger = nodes.opened(url)
    for turn in range(options.rounds):
        before = bare_rate(url, options.limit)
        for name in list(rates) if turn % 2 == 0 else reversed(rates):
            rate, wall_s = node_rate(ledger, url, options.limit, *CONTESTANTS[name])
            after = bare_rate(url, options.limit)
            rates[name].append(rate)
            walls[name].append(wall_s)
            ratios[name].append(rate / ((before + after) / 2))
            _say(options, f"round {turn + 1}: {name:9} {rate:>7,.0f}/s of {(before + after) / 2:>7,.0f} bare")
            bares.append(after)
            before = after
    at_end = [bare_rate(url, options.limit, bare_runs.AT_END) for _ in range(options.rounds)]
    ledger.close()
    result: dict[str, Any] = {"bare_runs_per_s": _median(bares), "bare_attempt_at_end_runs_per_s": _median(at_end)}
    for name, each in rates.items():
        result[name] = {
            "runs_per_s": _median(each),
            "ratio": round(statistics.median(ratios[name]), 3),
            "ratios": [round(ratio, 2) for ratio in ratios[name]],
            "wall_s": round(statistics.median(walls[name]), 2),
        }
    if "two_nodes" in rates and "thread" in rates:
        speedups = [two / one for two, one in zip(ratios["two_nodes"], ratios["thread"], strict=True)]
        result["two_nodes"]["speedup"] = round(statistics.median(speedups), 2)
    _show(options, result)
    return result


def bare_rate(url: str, runs: int, loop: bare_runs.Loop = bare_runs.AT_CLAIM) -> float:
    bare_runs.prepare(url, runs)
    done, seconds = bare_runs.work(url, loop)
    bare_runs.check(url, runs)
    return done / seconds


def node_rate(ledger: Any, url: str, runs: int, count: int, *how: str) -> tuple[float, float]:
    """Return the runs per second of so many nodes, and how long it looked from here."""
    nodes.empty(url)
    with nodes.nodes(count, "noop:app", [url], *how) as started:
        time.sleep(1.5)  # the workers have loaded the application by then
        for node in started:
            node.pause()
        nodes.fill(ledger, url, runs)
        began_at = time.perf_counter()
        for node in started:
            node.resume()
        nodes.until(lambda: nodes.is_done(url), DEADLINE_S, f"{runs} runs are done")
        wall_s = time.perf_counter() - began_at
    checked = nodes.check(url, runs)
    if checked.seconds > wall_s:
        raise RuntimeError(f"the ledger says {checked.seconds:.2f} s, but it was over in {wall_s:.2f} s")
    if checked.nodes < count:
        print(f"only {checked.nodes} of {count} nodes took part: {runs} runs are too few", file=sys.stderr)
    return runs / checked.seconds, wall_s


# -- SQLite ----------------------------------------------------------------------------------------------------------


def on_sqlite(options: argparse.Namespace) -> dict[str, Any]:
    rates = []
    for _ in range(max(1, options.rounds // 2)):
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/bench.db"
            ledger = nodes.opened(url)
            rate, wall_s = node_rate(ledger, url, options.limit, 1, "--threads")
            ledger.close()
        rates.append(rate)
        _say(options, f"sqlite    {rate:>7,.0f}/s ({wall_s:.1f} s seen from here)")
    return {"runs_per_s": _median(rates)}


# -- what Python costs -----------------------------------------------------------------------------------------------


def python_cost(url: str, options: argparse.Namespace) -> dict[str, float]:
    """Return the processor time of a node on threads per run: Fencepost's and the driver's."""
    ledger = nodes.opened(url)
    nodes.empty(url)
    nodes.fill(ledger, url, options.limit)
    ledger.close()
    child = subprocess.run(
        [sys.executable, str(HERE / "python_cost.py"), str(options.limit)],
        env={**os.environ, "FENCEPOST_URL": url},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    if child.returncode:
        raise RuntimeError(f"the measured node failed:\n{child.stderr[-3000:]}")
    nodes.check(url, options.limit)
    cost: dict[str, float] = json.loads(child.stdout.splitlines()[-1])
    _say(
        options, f"python    {cost['fencepost']:.1f} µs of a run are Fencepost's, {cost['driver']:.1f} µs the driver's;"
    )
    left = cost["wall"] - cost["wall_claim"] - cost["wall_finish"]
    _say(
        options,
        f"          {cost['wall']:.1f} µs by the clock: {cost['wall_claim']:.1f} to claim,"
        f" {cost['wall_finish']:.1f} to finish, {left:.1f} between",
    )
    return cost


# -- peers -----------------------------------------------------------------------------------------------------------


def peers_found(options: argparse.Namespace) -> list[str]:
    found: list[str] = json.loads(_peers(options))
    for name in ("pgqueuer", "procrastinate", "apscheduler"):
        if name not in found and options.peers_python != sys.executable:
            _say(options, f"{name}: not installed in {options.peers_python}")
    return found


def peer(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Run one of the others once, on a server of its own."""
    with Postgres() as server:
        result: dict[str, float] = json.loads(_peers(options, "--peer", name, "--runs", str(options.limit), server.url))
    _say(options, f"{name:9} {result['runs_per_s']:>7,.0f}/s ({result['runs']:,} runs)")
    return result


def _peers(options: argparse.Namespace, *arguments: str) -> str:
    command = [options.peers_python, str(HERE / "peers.py"), *arguments]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=True)
    return ended.stdout.splitlines()[-1]


# -- the rest --------------------------------------------------------------------------------------------------------


def shortfalls(result: dict[str, Any]) -> list[str]:
    """Say which targets were missed."""
    postgres, missed = result["postgres"], []
    for name, target in TARGETS.items():
        if name in postgres and postgres[name]["ratio"] < target:
            missed.append(f"{name} at {postgres[name]['ratio']:.2f} of the bare loop, not {target}")
    if (speedup := postgres.get("two_nodes", {}).get("speedup", TWO_NODES)) < TWO_NODES:
        missed.append(f"two nodes at {speedup:.2f} of one, not {TWO_NODES}")
    if (rate := result.get("sqlite", {}).get("runs_per_s", SQLITE_PER_S)) < SQLITE_PER_S:
        missed.append(f"SQLite at {rate:,}/s, not {SQLITE_PER_S:,}")
    if (cost := postgres["python_us_per_run"]["fencepost"]) > PYTHON_US:
        missed.append(f"Python at {cost:.1f} µs a run, not {PYTHON_US}")
    return missed


def _median(values: list[float]) -> int:
    return round(statistics.median(values))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as the last line, as JSON")
    parser.add_argument("--limit", type=int, default=50_000, help="how many runs each has to do")
    parser.add_argument("--rounds", type=int, default=5, help="how many turns each has")
    parser.add_argument(
        "--only", nargs="+", default=[*CONTESTANTS, "sqlite"], choices=[*CONTESTANTS, "sqlite"], help="only these"
    )
    parser.add_argument("--peers-python", default=sys.executable, help="a Python that has PgQueuer, Procrastinate …")
    return parser.parse_args()


def _show(options: argparse.Namespace, result: dict[str, Any]) -> None:
    bare, at_end = result["bare_runs_per_s"], result["bare_attempt_at_end_runs_per_s"]
    _say(options, f"bare      {bare:>7,}/s; {at_end:,}/s if it writes the attempt once, at the end")
    for name in CONTESTANTS:
        if name in result:
            more = f", {result[name]['speedup']} × one" if "speedup" in result[name] else ""
            _say(options, f"{name:9} {result[name]['runs_per_s']:>7,}/s = {result[name]['ratio']:.2f} of bare{more}")


def _say(options: argparse.Namespace, line: str) -> None:
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    main()
