"""Other Python job queues on PostgreSQL, as columns beside ours. Queues that are not installed are left out.

    python bench/peers.py                                            which of them can be imported here
    python bench/peers.py --peer pgqueuer --runs 50000 postgresql://…  one of them alone, on a database of yours

They are no dependencies. To see them in `bench/throughput.py`, put them into an environment of their own and name its
Python:  python bench/throughput.py --peers-python /path/to/other/venv/bin/python

Each is used as its own documentation says: on the fastest driver it offers, on uvloop if that is there, with durable
tables (its default), an async no-op, and a batch or concurrency of 100. The clock runs from the start of its worker
until all is done, and what is left in its tables is counted afterwards. They keep less than we do: PgQueuer moves a
finished job into a log, Procrastinate marks its row, APScheduler deletes it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import time
from collections.abc import Awaitable, Callable

BATCH = 100
# The rate of those that take one job per round trip does not depend on how many there are.
SLOW = {"procrastinate": 2_000, "apscheduler": 2_000}


async def pgqueuer(url: str, runs: int) -> float:
    """PgQueuer on asyncpg, dequeuing a hundred at a time."""
    import asyncpg
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.qm import QueueManager
    from pgqueuer.queries import Queries
    from pgqueuer.types import QueueExecutionMode

    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for first in range(0, runs, 1_000):
        count = min(1_000, runs - first)
        await queries.enqueue(["noop"] * count, [None] * count, [0] * count)
    await connection.execute("VACUUM ANALYZE")
    await connection.execute("CHECKPOINT")
    queue = QueueManager(queries)

    @queue.entrypoint("noop")
    async def noop(job: object) -> None: ...

    seconds = await _timed(queue.run(batch_size=BATCH, mode=QueueExecutionMode.drain))
    connection = await asyncpg.connect(url)
    done = await connection.fetchval("SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'")
    await connection.close()
    return _checked(done, runs, seconds)


async def procrastinate(url: str, runs: int) -> float:
    """Procrastinate with a hundred jobs at a time; it fetches and ends each by a statement of its own."""
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=10))

    @app.task(name="noop")
    async def noop() -> None: ...

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await noop.batch_defer_async(*({} for _ in range(runs)))
        await app.connector.execute_query_async("ANALYZE")
        seconds = await _timed(
            app.run_worker_async(wait=False, concurrency=BATCH, install_signal_handlers=False, listen_notify=False)
        )
        row = await app.connector.execute_query_one_async(
            "SELECT count(*) AS done FROM procrastinate_jobs WHERE status = 'succeeded'"
        )
    return _checked(row["done"], runs, seconds)


async def apscheduler(url: str, runs: int) -> float:
    """APScheduler 4 on asyncpg, a hundred jobs at a time."""
    from apscheduler import AsyncScheduler
    from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    async with AsyncScheduler(SQLAlchemyDataStore(engine), max_concurrent_jobs=BATCH) as scheduler:
        for _ in range(runs):
            await scheduler.add_job(_apscheduler_noop)
        async with engine.begin() as connection:
            await connection.execute(text("ANALYZE"))
        seconds = await _timed(_drained(scheduler, runs))
        async with engine.connect() as connection:
            left = (await connection.execute(text("SELECT count(*) FROM jobs"))).scalar_one()
    await engine.dispose()
    return _checked(runs - left, runs, seconds)


async def _drained(scheduler: object, runs: int) -> None:
    from apscheduler import JobReleased

    done, all_done = 0, asyncio.Event()

    def count(event: object) -> None:
        nonlocal done
        done += 1
        if done == runs:
            all_done.set()

    with scheduler.subscribe(count, {JobReleased}):  # type: ignore[attr-defined]
        await scheduler.start_in_background()  # type: ignore[attr-defined]
        await all_done.wait()
        await scheduler.stop()  # type: ignore[attr-defined]


async def _apscheduler_noop() -> None: ...


PEERS: dict[str, tuple[Callable[[str, int], Awaitable[float]], tuple[str, ...]]] = {
    "pgqueuer": (pgqueuer, ("pgqueuer", "asyncpg")),
    "procrastinate": (procrastinate, ("procrastinate", "psycopg")),
    "apscheduler": (apscheduler, ("apscheduler.datastores.sqlalchemy", "sqlalchemy", "asyncpg")),
}


def installed() -> list[str]:
    """Return the peers that can be imported by this Python."""
    return [name for name, (_, modules) in PEERS.items() if all(map(_is_importable, modules))]


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # APScheduler 3 has no `datastores`
        return False


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not _is_importable("uvloop"):
        return None
    import uvloop

    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return new_loop


async def _timed(work: Awaitable[object]) -> float:
    began_at = time.perf_counter()
    await work
    return time.perf_counter() - began_at


def _checked(done: int, runs: int, seconds: float) -> float:
    if done != runs:
        raise RuntimeError(f"{done} of {runs} were recorded as done")
    return runs / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=sorted(PEERS))
    parser.add_argument("--runs", type=int, default=50_000)
    parser.add_argument("url", nargs="?", help="an empty PostgreSQL database; tables are made in it")
    options = parser.parse_args()
    if options.peer is None:
        print(json.dumps(installed()))
        return
    runs = min(options.runs, SLOW.get(options.peer, options.runs))
    with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
        rate = runner.run(PEERS[options.peer][0](options.url, runs))  # type: ignore[arg-type]
    print(json.dumps({"runs": runs, "runs_per_s": round(rate)}))


if __name__ == "__main__":
    main()
