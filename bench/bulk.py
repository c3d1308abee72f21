"""How fast is bulk work? A million rows from PostgreSQL to PostgreSQL, beside the same by hand.

    python bench/bulk.py [--json] [--rows 1000000] [--chunk 2000] [--rounds 5] [--only copy unnest …]

On a private PostgreSQL as shipped (fsync and synchronous_commit on), in one run, in turns:

- *copy, unnest, executemany*: a bulk job with that writer, beside the loop of `bare_bulk.py` with the same chunks and
  the same way to write. The job is a real one: a run that a node (``fencepost run``) claims and a worker process
  executes, in chunks that commit with their checkpoint behind the fence. Ledger, source and target are in one database.
  Ours is timed by the ledger's clock, from the claim to the end, planning included; the loop by its own, without
  starting and connecting. A ratio is ours over the mean of the loops before and after it, and what is printed is the
  median of the rounds: this machine may be noisy, but it is noisy for both.
- *partitions*: a job that computes for some ten microseconds a row, with two partitions on two worker processes, over
  the same with one.
- *memory*: the peak of the worker's memory (VmHWM) with all the rows over that with a tenth of them, each by a node of
  its own.

After each turn the rows are recounted: each is there once, changed.

Targets: ratios ≥ 0.8; two partitions ≥ 1.5 × one, on two processors; memory ≤ 1.2 ×.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stores import in_project_environment

in_project_environment()

import nodes  # noqa: E402
import psycopg  # noqa: E402
from nodes import ask  # noqa: E402

from testbed.postgres import Postgres  # noqa: E402

HERE = Path(__file__).parent
WAYS = ("copy", "unnest", "executemany")
PARTS = (*WAYS, "partitions", "memory")
RATIO, SPEEDUP, GROWTH = 0.8, 1.5, 1.2
DEADLINE_S = 900


def main() -> None:
    options = _options()
    load = round(os.getloadavg()[0], 1)
    if load > 0.5:
        _say(
            options,
            f"others are at work here (load {load}): rounds will differ, and partitions have no processor to gain",
        )
    with Postgres() as server:
        prepare(server.url, options.rows)
        result = measured(server.url, options)
    missed = shortfalls(result)
    if options.json:
        print(
            json.dumps({**result, "rows": options.rows, "chunk": options.chunk, "load_before": load, "missed": missed})
        )
    if missed:
        sys.exit("short of the target: " + "; ".join(missed))


def measured(url: str, options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {}
    with node(url, options):
        for way in [each for each in WAYS if each in options.only]:
            result |= beside_by_hand(url, way, options)
        if "partitions" in options.only:
            result |= partitions(url, options)
    if "memory" in options.only:
        result |= memory(url, options)
    return result


def prepare(url: str, rows: int) -> None:
    """Make the ledger, the rows to be read, and the table that they go to."""
    nodes.opened(url).close()
    ask(url, "CREATE TABLE source (id bigint PRIMARY KEY, amount bigint NOT NULL)")
    ask(url, "CREATE TABLE effect (id bigint NOT NULL, amount bigint NOT NULL)")
    ask(url, "CREATE TABLE peak (run_id bigint, kb bigint)")
    ask(url, f"INSERT INTO source SELECT n, n * 7 FROM generate_series(1, {rows}) n")
    ask(url, "VACUUM ANALYZE source")


@contextmanager
def node(url: str, options: argparse.Namespace) -> Iterator[None]:
    """A node with two worker processes, which have loaded the application."""
    with nodes.nodes(1, "bulk_jobs:app", [url], "--workers", "2", variables={"BULK_CHUNK": str(options.chunk)}):
        yield


# -- beside the same by hand -----------------------------------------------------------------------------------------


def beside_by_hand(url: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Let the loop and the job take turns."""
    ours, bare, ratios = [], [], []
    job_s(url, way, min(options.rows, 50_000))  # the worker has loaded and connected then
    before = bare_s(url, way, options)
    for turn in range(options.rounds):
        took_s = job_s(url, way, options.rows)
        after = bare_s(url, way, options)
        ratios.append((before + after) / 2 / took_s)
        ours.append(took_s)
        bare.append(after)
        before = after
        _say(
            options,
            f"round {turn + 1}: {way:11} {options.rows / took_s:>9,.0f} rows/s = {ratios[-1]:.2f} of"
            f" {options.rows / after:>9,.0f} by hand",
        )
    return {
        f"ratio_{way}": round(statistics.median(ratios), 3),
        f"{way}_rows_per_s": round(options.rows / statistics.median(ours)),
        f"{way}_by_hand_rows_per_s": round(options.rows / statistics.median(bare)),
        f"{way}_ratios": [round(each, 3) for each in ratios],
    }


def bare_s(url: str, way: str, options: argparse.Namespace) -> float:
    """Let the loop do it in a process of its own, and return how long it took."""
    fresh(url)
    command = [sys.executable, str(HERE / "bare_bulk.py"), url, way, str(options.rows), str(options.chunk)]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=True)
    recount(url, options.rows)
    return float(child.stdout)


def job_s(url: str, job: str, rows: int) -> float:
    """Let the node do it, and return how long it took by the ledger's clock."""
    fresh(url)
    return _ran(url, job, rows)[1]


def _ran(url: str, job: str, rows: int) -> tuple[int, float]:
    run_id = triggered(url, job, rows)
    ended = ("succeeded", "dead", "cancelled", "skipped")
    select = f"SELECT state, error, ended_at - started_at FROM fencepost_run WHERE id = {run_id}"
    with psycopg.connect(nodes.plain(url), autocommit=True) as watching:  # one: to connect costs a server milliseconds
        nodes.until(
            lambda: (watching.execute(select).fetchone() or ("",))[0] in ended,
            DEADLINE_S,
            f"run {run_id} of {job} ends",
        )
    [(state, error, took_us)] = ask(url, select)
    if state != "succeeded":
        raise RuntimeError(f"run {run_id} of {job} is {state}: {error}")
    recount(url, rows)
    return run_id, took_us / 1e6


def triggered(url: str, job: str, rows: int) -> int:
    """Ask for a run as people do, and return its number."""
    command = [str(Path(sys.executable).parent / "fencepost"), "trigger", job, "-p", f"rows={rows}", "--json"]
    environment = {**os.environ, "FENCEPOST_URL": url}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=True)
    return int(json.loads(done.stdout)["run"])


def fresh(url: str) -> None:
    """Empty the table that is written to, and let the database come to rest."""
    ask(url, "TRUNCATE effect")
    ask(url, "CHECKPOINT")


def recount(url: str, rows: int) -> None:
    """Hold it to that: each row is there once, changed."""
    [(count, distinct, wrong)] = ask(
        url, "SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE amount <> id * 7 + 1) FROM effect"
    )
    if not count == distinct == rows or wrong:
        raise RuntimeError(f"{rows} rows were to be written: {count} are there, {distinct} different, {wrong} wrong")


# -- partitions and memory -------------------------------------------------------------------------------------------


def partitions(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Let a job that computes run in one and in two partitions."""
    rows = max(options.rows // 4, options.chunk * 2)
    job_s(url, "two_partitions", options.chunk * 2)  # both workers have loaded
    pairs = []
    for turn in range(options.rounds):
        names = ("one_partition", "two_partitions") if turn % 2 else ("two_partitions", "one_partition")
        took_s = {name: job_s(url, name, rows) for name in names}
        pairs.append(took_s["one_partition"] / took_s["two_partitions"])
        _say(
            options,
            f"round {turn + 1}: partitions  {took_s['one_partition']:.1f} s with one, {took_s['two_partitions']:.1f} s"
            f" with two: {pairs[-1]:.2f} ×",
        )
    return {"partition_speedup": round(statistics.median(pairs), 3), "speedups": [round(each, 3) for each in pairs]}


def memory(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Compare what the worker takes with a tenth of the rows, and with all."""
    few_mb, many_mb = (peak_mb(url, rows, options) for rows in (options.rows // 10, options.rows))
    _say(options, f"memory: {few_mb:.1f} MB with {options.rows // 10:,} rows, {many_mb:.1f} MB with {options.rows:,}")
    return {"rss_growth": round(many_mb / few_mb, 3), "rss_mb": [round(few_mb, 1), round(many_mb, 1)]}


def peak_mb(url: str, rows: int, options: argparse.Namespace) -> float:
    with node(url, options):
        fresh(url)
        run_id, _ = _ran(url, "copy", rows)
    [(kb,)] = ask(url, f"SELECT kb FROM peak WHERE run_id = {run_id}")
    return float(kb) / 1024


# -- the rest --------------------------------------------------------------------------------------------------------


def shortfalls(result: dict[str, Any]) -> list[str]:
    """Say which targets were missed."""
    missed = [
        f"{way} at {result[f'ratio_{way}']:.2f} of the loop by hand, not {RATIO}"
        for way in WAYS
        if result.get(f"ratio_{way}", RATIO) < RATIO
    ]
    if result.get("partition_speedup", SPEEDUP) < SPEEDUP:
        missed.append(f"two partitions at {result['partition_speedup']:.2f} × one, not {SPEEDUP}")
    if result.get("rss_growth", GROWTH) > GROWTH:
        missed.append(f"memory at {result['rss_growth']:.2f} × for ten times the rows, not {GROWTH}")
    return missed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as the last line, as JSON")
    parser.add_argument("--rows", type=int, default=1_000_000, help="how many rows each has to move")
    parser.add_argument("--chunk", type=int, default=2_000, help="how many rows a chunk has")
    parser.add_argument("--rounds", type=int, default=5, help="how many turns each has")
    parser.add_argument("--only", nargs="+", default=PARTS, choices=PARTS, help="only these")
    return parser.parse_args()


def _say(options: argparse.Namespace, line: str) -> None:
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    main()
