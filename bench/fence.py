"""What does a fence cost? A transaction with one insert behind the fence, beside the same transaction without it.

    python bench/fence.py [--json] [--rounds 41] [--seconds 0.1] [--partition-rounds 9] [--partition-seconds 1]

On a private PostgreSQL as shipped (fsync and synchronous_commit on), in one run, in turns. What is printed is the
median of the ratios of the turns: this machine may be noisy, but it is noisy for all of them.

- *ratio*: time per transaction, fenced over unfenced, one client. Both drivers, psycopg (a connection that is kept) and
  SQLAlchemy (an engine with its pool), at READ COMMITTED; both fences, the run's row in the ledger's own database and
  the row of the table `fence` in another.
- *partitions*: transactions per second of eight processes at once, fenced over unfenced. Each is a run of its own, with
  a key and a fence row of its own, and writes as partitions do, a chunk of rows at a time: 2,000, which is what bulk
  work has by default. Nothing may be waited for but the disk and the processors: `lock_waits` is how often one
  of them was seen to wait for a row. *One row* is the same with a single insert, where processors are all there is to
  wait for, and eight clients keep them busy; it has no target.
- *in memory*: the ratio once more with ``synchronous_commit = off``, where a commit waits for no disk, and round trips
  are all there is. It has no target: it tells what is left on a machine whose disk costs nothing.

The fence is the whole of `run.transaction()`: it is what users call. The run is claimed, as a node does it, and no node
is at work meanwhile.

Targets: ratio ≤ 1.6 with each driver and fence; partitions ≥ 0.8 with each, and no waits for a row.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from stores import in_project_environment

in_project_environment()

import psycopg  # noqa: E402
import sqlalchemy  # noqa: E402
from sqlalchemy import text  # noqa: E402

from fencepost import App, Run  # noqa: E402
from fencepost.core.overlap import START  # noqa: E402
from fencepost.effects.installing import install, open_database  # noqa: E402
from fencepost.ledger import migrations  # noqa: E402
from fencepost.ledger.claiming import claim  # noqa: E402
from fencepost.ledger.ledger import open_ledger  # noqa: E402
from fencepost.threaded import ThreadedRuntime  # noqa: E402
from testbed.postgres import Postgres  # noqa: E402

RATIO = 1.6
PARTITIONS_RATIO = 0.8
FENCES = ("run row", "fence row")
DRIVERS = ("psycopg", "sqlalchemy")
NODE = "bench"
INSERT = "INSERT INTO effect (n) VALUES (1)"
CHUNK = "INSERT INTO effect (n) SELECT * FROM generate_series(1, 2000)"
PATIENCE_S = 300

Transaction = Callable[[], None]


def main() -> None:
    options = _options()
    load = round(os.getloadavg()[0], 1)
    with Postgres() as server:
        ledger_url, elsewhere_url = prepare(server.url)
        urls = {"run row": ledger_url, "fence row": elsewhere_url}
        ratios = {fence: one_client(ledger_url, urls[fence], options, fence) for fence in options.fence}
        partitions = {fence: eight_clients(ledger_url, urls[fence], options, fence) for fence in options.fence}
    result: dict[str, Any] = {
        "ratio": max(each["ratio"] for of in ratios.values() for each in of.values()),
        "partitions_ratio": min(each["ratio"] for of in partitions.values() for each in of.values()),
        "ratios": ratios,
        "partitions": partitions,
        "load_before": load,
    }
    missed = shortfalls(result)
    if options.json:
        print(json.dumps({**result, "missed": missed}))
    if missed:
        sys.exit("short of the target: " + "; ".join(missed))


def prepare(url: str) -> tuple[str, str]:
    """Make a ledger, another database with the tables of effects, and a table for the inserts in both."""
    elsewhere_url = url.rpartition("/")[0] + "/elsewhere"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE elsewhere")
    ledger = open_ledger(url, ThreadedRuntime())
    migrations.migrate(ledger)
    ledger.close()
    elsewhere = open_database(elsewhere_url, ThreadedRuntime())
    install(elsewhere)
    elsewhere.close()
    for each in (url, elsewhere_url):
        with psycopg.connect(each, autocommit=True) as connection:
            connection.execute("CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int)")
    return url, elsewhere_url


@contextmanager
def claimed_run(ledger_url: str, key: str) -> Iterator[Run]:
    """A run that was claimed as a node does it."""
    app, name = App(ledger_url), key.replace(" ", "-").replace("#", "-")
    app.job(name=name, exclusive=key, isolation="read committed")(lambda: None).enqueue()
    connection = app.ledger.connect("bench")
    taken = claim(connection, node=NODE, jobs=[name], queues=["default"], limit=1, decide=lambda job, **_: START)
    [claimed] = taken.claims
    connection.rest()
    yield Run(app.jobs[name], claimed, app.worker_context())
    app.close()


@contextmanager
def transactions(
    run: Run, url: str, driver: str, *, insert: str = INSERT, in_memory: bool = False
) -> Iterator[dict[str, Transaction]]:
    """The same transaction with and without a fence, on the same connection."""
    setting = "-c synchronous_commit=off" if in_memory else ""
    if driver == "psycopg":
        with psycopg.connect(url, autocommit=True, options=setting) as connection:
            yield _on_psycopg(run, connection, insert)
    else:
        address = url.replace("postgresql:", "postgresql+psycopg:")
        engine = sqlalchemy.create_engine(address, pool_size=1, connect_args={"options": setting})
        yield _on_sqlalchemy(run, engine, text(insert))
        engine.dispose()


def _on_psycopg(run: Run, connection: psycopg.Connection[Any], insert: str) -> dict[str, Transaction]:
    def fenced() -> None:
        with run.transaction(connection) as tx:
            tx.execute(insert)

    def unfenced() -> None:
        with connection.transaction():
            connection.execute(insert)

    return {"fenced": fenced, "unfenced": unfenced}


def _on_sqlalchemy(run: Run, engine: sqlalchemy.Engine, insert: sqlalchemy.TextClause) -> dict[str, Transaction]:
    def fenced() -> None:
        with run.transaction(engine) as tx:
            tx.execute(insert)

    def unfenced() -> None:
        with engine.begin() as tx:
            tx.execute(insert)

    return {"fenced": fenced, "unfenced": unfenced}


# -- one client ------------------------------------------------------------------------------------------------------


def one_client(ledger_url: str, url: str, options: argparse.Namespace, fence: str) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    with claimed_run(ledger_url, f"one/{fence}") as run:
        for driver in options.driver:
            with transactions(run, url, driver) as both:
                results[driver] = in_turns(both, options.rounds, options.seconds)
            with transactions(run, url, driver, in_memory=True) as both:
                results[driver]["ratio_in_memory"] = in_turns(both, options.rounds, options.seconds)["ratio"]
            _say(options, f"{fence:9} · {driver:10} {_told(results[driver])}")
    return results


def in_turns(both: dict[str, Transaction], rounds: int, seconds: float) -> dict[str, Any]:
    times_us: dict[str, list[float]] = {name: [] for name in both}
    for transaction in both.values():
        transaction()
    for turn in range(rounds):
        for name in both if turn % 2 else reversed(both):
            times_us[name].append(1_000_000 / _rate(both[name], seconds))
    ratios = [ours / bare for ours, bare in zip(times_us["fenced"], times_us["unfenced"], strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "fenced_us": round(statistics.median(times_us["fenced"])),
        "unfenced_us": round(statistics.median(times_us["unfenced"])),
    }


def _rate(transaction: Transaction, seconds: float) -> float:
    count, began_at = 0, time.perf_counter()
    while (spent := time.perf_counter() - began_at) < seconds or not count:
        transaction()
        count += 1
    return count / spent


# -- eight of them at once -------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where partitions write, and how long a turn is."""

    fence: str
    driver: str
    ledger_url: str
    url: str
    seconds: float
    partitions: int
    insert: str = CHUNK

    def key(self, number: int) -> str:
        return f"{self.driver}/{self.fence}/{'chunk' if self.insert == CHUNK else 'row'}#{number}"


def eight_clients(ledger_url: str, url: str, options: argparse.Namespace, fence: str) -> dict[str, dict[str, Any]]:
    """Let eight processes take turns together, each on its partition."""
    results: dict[str, dict[str, Any]] = {}
    plan = [name for turn in range(options.partition_rounds) for name in _pair(turn)]
    for driver in options.driver:
        place = Place(fence, driver, ledger_url, url, options.partition_seconds, options.partitions)
        results[driver] = {
            **_partitions(place, plan),
            "one_row_ratio": _partitions(place._replace(insert=INSERT), plan)["ratio"],
        }
        _say(options, f"{fence:9} · {driver:10} {_told_of_many(results[driver])}")
    return results


def _partitions(place: Place, plan: list[str]) -> dict[str, Any]:
    with watched(place.url) as waits:
        rates = _partition_rates(place, plan)
    ratios = [ours / bare for ours, bare in zip(rates["fenced"], rates["unfenced"], strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "fenced_per_s": round(statistics.median(rates["fenced"])),
        "unfenced_per_s": round(statistics.median(rates["unfenced"])),
        "lock_waits": sum(waits),
        "looks": len(waits),
    }


@contextmanager
def watched(url: str) -> Iterator[list[int]]:
    """Count every few milliseconds how many wait for a row, or for the transaction that has locked it."""
    waits: list[int] = []
    is_over = threading.Event()
    sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('tuple', 'transactionid')"

    def look() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not is_over.wait(0.02):
                waits.extend(connection.execute(sql).fetchone() or ())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield waits
    finally:
        is_over.set()
        watcher.join()


def _partition_rates(place: Place, plan: list[str]) -> dict[str, list[float]]:
    context = multiprocessing.get_context("spawn")
    barrier, counts = context.Barrier(place.partitions), context.Queue()
    workers = [
        context.Process(target=_partition, args=(number, place, plan, barrier, counts))
        for number in range(place.partitions)
    ]
    with ExitStack() as ended:
        for worker in workers:
            worker.start()
            ended.callback(worker.join)
        counted = [counts.get(timeout=PATIENCE_S) for _ in workers]
    if failures := [each for each in counted if isinstance(each, str)]:
        raise RuntimeError("; ".join(failures))
    totals = [sum(each) / place.seconds for each in zip(*counted, strict=True)]
    named = list(zip(plan, totals, strict=True))
    return {kind: [total for name, total in named if name == kind] for kind in ("fenced", "unfenced")}


def _pair(turn: int) -> tuple[str, str]:
    return ("fenced", "unfenced") if turn % 2 else ("unfenced", "fenced")


def _partition(number: int, place: Place, plan: list[str], barrier: Any, counts: Any) -> None:
    """Do what the plan says together with all others, and tell how often it was done."""
    try:
        counted = []
        with (
            claimed_run(place.ledger_url, place.key(number)) as run,
            transactions(run, place.url, place.driver, insert=place.insert) as both,
        ):
            for transaction in both.values():
                transaction()
            for name in plan:
                barrier.wait(PATIENCE_S)
                counted.append(_count(both[name], place.seconds))
        counts.put(counted)
    except BaseException as error:
        barrier.abort()
        counts.put(f"partition {number}: {type(error).__name__}: {error}")
        raise


def _count(transaction: Transaction, seconds: float) -> int:
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        transaction()
        count += 1
    return count


# -- the rest --------------------------------------------------------------------------------------------------------


def shortfalls(result: dict[str, Any]) -> list[str]:
    """Say which targets were missed."""
    missed = []
    for fence, of in result["ratios"].items():
        for driver, each in of.items():
            if each["ratio"] > RATIO:
                missed.append(f"{fence} with {driver} at {each['ratio']:.2f} × unfenced, not {RATIO}")
    for fence, of in result["partitions"].items():
        for driver, each in of.items():
            what = f"partitions, {fence} with {driver},"
            if each["ratio"] < PARTITIONS_RATIO:
                missed.append(f"{what} at {each['ratio']:.2f} of unfenced, not {PARTITIONS_RATIO}")
            if each["lock_waits"]:
                missed.append(f"{what} waited for a row {each['lock_waits']} times in {each['looks']} looks, not 0")
    return missed


def _told(result: dict[str, Any]) -> str:
    return (
        f"{result['fenced_us']:>5} µs = {result['ratio']:.2f} × {result['unfenced_us']} µs unfenced"
        f" ({result['ratio_in_memory']:.2f} × where no disk is waited for)"
    )


def _told_of_many(result: dict[str, Any]) -> str:
    return (
        f"partitions: {result['fenced_per_s']:,}/s = {result['ratio']:.2f} of"
        f" {result['unfenced_per_s']:,}/s unfenced ({result['one_row_ratio']:.2f} with one row);"
        f" {result['lock_waits']} waits for a row seen in {result['looks']} looks"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as the last line, as JSON")
    parser.add_argument("--rounds", type=int, default=41, help="how many turns each has, alone")
    parser.add_argument("--seconds", type=float, default=0.1, help="how long a turn is, alone")
    parser.add_argument("--partition-rounds", type=int, default=9, help="how many turns eight have together")
    parser.add_argument("--partition-seconds", type=float, default=1.0, help="how long a turn of eight is")
    parser.add_argument("--partitions", type=int, default=8, help="how many take these turns")
    parser.add_argument("--fence", nargs="+", default=FENCES, choices=FENCES, help="only these fences")
    parser.add_argument("--driver", nargs="+", default=DRIVERS, choices=DRIVERS, help="only these drivers")
    return parser.parse_args()


def _say(options: argparse.Namespace, line: str) -> None:
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    main()
