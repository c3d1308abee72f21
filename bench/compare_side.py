"""One side of `compare.py`: it imports the code of one commit, and takes a timed turn for each line that it reads.

    python bench/compare_side.py WORKLOAD

A line on standard input is how much to do: seconds, or a count of runs or rows. The answer is a line with a figure. The
end of the input ends it. Jobs and locks are reached through the public interface alone, so that commits far apart can
be compared. What is not timed is done with the driver: many equal runs are copies of one that was requested, and the
time from the first start to the last end is read from the ledger's table of runs, by the ledger's own clock.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from compare_jobs import PLACE, PREFIX, URL, Settle, app, fenced, figures, noop, rate

from fencepost import App, locks

Turn = Callable[[float], float]
DEADLINE_S = 120.0
BUSY_THREADS = 8
RENEW_EVERY = "5ms"
SETTLING_S = 0.2  # after this long all threads are at work


def main() -> None:
    with WORKLOADS[sys.argv[1]]() as turn:
        print("ready", flush=True)
        for line in sys.stdin:
            print(turn(float(line)), flush=True)


# -- runs ------------------------------------------------------------------------------------------------------------


@contextmanager
def threads() -> Iterator[Turn]:
    """No-op runs of a node on threads: runs a second."""
    migrate()
    with app.running("5s"):
        yield runs_per_s


@contextmanager
def processes() -> Iterator[Turn]:
    """The same of a node with worker processes, ``fencepost run``."""
    migrate()
    with node():
        yield runs_per_s


def runs_per_s(amount: float) -> float:
    """Make runs that are due now, all at one instant, and return how many a second were begun and recorded as ended."""
    count = max(int(amount), 1)
    clear()
    with psycopg.connect(PLACE) as connection:
        noop.enqueue(tx=connection)
        copies(connection, count - 1)
        ask("CHECKPOINT")
    until_done()
    [(ended, took_us)] = ask(
        f"SELECT count(*) FILTER (WHERE state = 'succeeded'), max(ended_at) - min(started_at) FROM {PREFIX}run"
    )
    if ended != count:
        raise RuntimeError(f"{count} runs were requested, {ended} succeeded")
    return count * 1e6 / took_us


def copies(connection: psycopg.Connection[Any], count: int) -> None:
    """Copy the one run that this transaction has requested, with all its columns; nodes see all when it commits."""
    found = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND column_name <> 'id'",
        [f"{PREFIX}run"],
    )
    columns = ", ".join(f'"{name}"' for (name,) in found)
    table = f"{PREFIX}run"
    connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {table}, generate_series(1, {count})")
    connection.execute(f"ANALYZE {table}")


def until_done() -> None:
    """Wait until no run is left to do."""
    left = f"SELECT 1 FROM {PREFIX}run WHERE state IN ('queued', 'running', 'waiting') LIMIT 1"
    give_up_at = time.monotonic() + DEADLINE_S
    with psycopg.connect(PLACE, autocommit=True) as watching:
        while watching.execute(left).fetchone():
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"the runs were not done in {DEADLINE_S:g} s")
            time.sleep(0.05)


# -- effects ---------------------------------------------------------------------------------------------------------


@contextmanager
def fence() -> Iterator[Turn]:
    """Fenced transactions with one insert, one after the other inside a run: transactions a second."""
    migrate()
    with app.running("5s"):
        yield transactions_per_s


def transactions_per_s(seconds: float) -> float:
    clear()
    ask("CHECKPOINT")
    fenced.enqueue(seconds=seconds)
    figure = figures.get(timeout=seconds + DEADLINE_S)
    if isinstance(figure, Exception):
        raise figure
    until_done()
    return figure


@contextmanager
def bulk() -> Iterator[Turn]:
    """Rows that a bulk job copies in a worker process, in fenced chunks: rows a second by the ledger's clock."""
    migrate()
    with node("--workers", "2"):
        yield rows_per_s


def rows_per_s(amount: float) -> float:
    rows = max(int(amount), 1)
    clear()
    ask("CHECKPOINT")
    run_id = Settle.enqueue(rows=rows).run_id
    until_done()
    [(state, error, took_us)] = ask(f"SELECT state, error, ended_at - started_at FROM {PREFIX}run WHERE id = {run_id}")
    [(there,)] = ask(f"SELECT count(*) FROM {PREFIX}effect")
    if state != "succeeded" or there != rows:
        raise RuntimeError(f"run {run_id} is {state} with {there} of {rows} rows: {error}")
    return rows * 1e6 / took_us


# -- leases ----------------------------------------------------------------------------------------------------------


@contextmanager
def leases() -> Iterator[Turn]:
    """Acquire+release pairs of one client: pairs a second."""
    with locks.connect(URL) as store:

        def pair() -> None:
            with store.lock("compared"):
                pass

        yield lambda seconds: rate(pair, seconds)


@contextmanager
def renewals() -> Iterator[Turn]:
    """Renewals of a lease beside threads that ask for runs, which a node in this process executes: p99 in ms."""
    migrate()
    yield renewal_p99_ms


def renewal_p99_ms(seconds: float) -> float:
    """Return how long a renewal takes, from before it is sent until its holder knows, in 99 of 100 cases.

    A holder trusts its lease for a fixed time, counted from before the request was sent; so the time it took is known
    from `trusted_until` when the renewal is reported. The application is made anew for each turn, since a session that
    is renewed so often would go on for a while beside the other side's turn.
    """
    clear()
    ask("CHECKPOINT")
    held: list[locks.Lease] = []
    took_s: list[float] = []

    def note(event: locks.Event) -> None:
        if event.what is locks.What.RENEWED and held and event.holder == held[0].holder:
            sent_at = held[0].trusted_until - held[0].timings.trust_s
            took_s.append(time.clock_gettime(time.CLOCK_BOOTTIME) - sent_at)

    busy = App(URL, ttl="10m", observers=[note])  # with this ttl the node itself has nothing to renew meanwhile
    nothing = busy.job(name="noop")(lambda: None)
    with ExitStack() as opened:
        opened.callback(busy.close)
        opened.enter_context(busy.running("5s"))
        opened.enter_context(asking(nothing.enqueue))
        lease = opened.enter_context(busy.lock("renewed", ttl="10s", renew_every=RENEW_EVERY))
        time.sleep(SETTLING_S)
        held.append(lease)
        time.sleep(seconds)
        held.clear()
    return 1000 * statistics.quantiles(took_s, n=100)[98]


@contextmanager
def asking(ask_for_run: Callable[[], Any]) -> Iterator[None]:
    """Keep the ledger busy from eight threads."""
    is_over = threading.Event()
    failures: list[Exception] = []

    def go_on() -> None:
        try:
            while not is_over.is_set():
                ask_for_run()
        except Exception as error:  # noqa: BLE001 - reported when the turn is over
            failures.append(error)

    started = [threading.Thread(target=go_on) for _ in range(BUSY_THREADS)]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in started:
            thread.join()
    if failures:
        raise failures[0]


# -- the rest --------------------------------------------------------------------------------------------------------


def migrate() -> None:
    """Make the ledger's tables, and one for effects."""
    subprocess.run([sys.executable, "-m", "fencepost", "migrate"], stdout=sys.stderr, check=True)
    ask(f"CREATE TABLE {PREFIX}effect (id bigint NOT NULL, amount bigint NOT NULL)")


@contextmanager
def node(*options: str) -> Iterator[None]:
    """A node with worker processes. Whoever asks for its first run waits until it has joined."""
    command = [sys.executable, "-m", "fencepost", "run", "compare_jobs:app", *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def clear() -> None:
    """Remove the runs and effects of the turn before."""
    for table in ("run", "attempt", "effect"):
        ask(f"TRUNCATE {PREFIX}{table}")


def ask(sql: str) -> list[tuple[Any, ...]]:
    """Ask the database something, with the driver alone."""
    with psycopg.connect(PLACE, autocommit=True) as connection:
        cursor: Any = connection.execute(sql)  # type: ignore[call-overload]
        rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
        return rows


WORKLOADS = {
    "threads": threads,
    "processes": processes,
    "fence": fence,
    "bulk": bulk,
    "leases-postgresql": leases,
    "leases-sqlite": leases,
    "renewals": renewals,
}

if __name__ == "__main__":
    main()
