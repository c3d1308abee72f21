"""Does it cost more when there is more? Claim and plan with 1,000 to 1,000,000 schedules and as many finished runs.

    python bench/scale.py [--json] [--sizes 1000 100000 1000000] [--rounds 25] [--checkpoint] [--only-year]

Each size has a database of its own on one private PostgreSQL, filled by SQL and then read into the server's memory,
which is large enough for all of them (a gigabyte; as shipped, 128 MB). All take turns in one process, so that
other load on the machine affects them alike. Printed is the lower quartile over the rounds: what else the machine
does only ever adds. The growth is that of the last size over that of the first. Target: at most 1.5.

- *claim*: a hundred runs that are due, by the call that the exchange makes. *finish*: the end of the same hundred.
- *claim keyed*, *finish keyed*: the same for runs that exclude each other by keys; as many keys were used before.
- *plan*: 200 schedules that have come due, by the call that the planner makes, with its real rules: a run is recorded
  for each, and each moves on to its next due time.
- What comes due together was made together, beginning at any place among all. *scattered*: the same, but each picked at
  random. That has no target: 200 of 1,000 rows share a few pages, and 200 of 100,000 have a page each, whatever the
  statement; from there to 1,000,000 less is added.
- *look*: the one question that an idle node asks.

Last, a year of a job that is due every minute and that no living node has (*year*): 525,600 runs that an older version
has planned, and its schedule. A node of another program does what nodes do about it: the runs are set aside, and the
schedule is not planned. Then an empty claim and a look may cost at most 1.5 times what they cost on an empty ledger.

No checkpoint falls between filling and measuring, unless asked for by ``--checkpoint``: after one, PostgreSQL logs the
whole of a page with its first change, which is paid once per page, and so in many places or in few.

Everything twice. First with the statistics of empty tables, and on a connection whose statements were prepared, and
planned for good, while the tables were small: nothing but the shape of the statements keeps PostgreSQL from reading
whole tables. Then after ANALYZE, which autovacuum would have done. (It is off on these tables, lest it come and help.)
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from stores import in_project_environment

in_project_environment()

import psycopg  # noqa: E402

from fencepost.core.overlap import Decision, decide  # noqa: E402
from fencepost.core.policy import Overlap, Policy  # noqa: E402
from fencepost.core.runs import Claim, Ending  # noqa: E402
from fencepost.core.schedule import every, schedule_to_json  # noqa: E402
from fencepost.engine.serving import Serving  # noqa: E402
from fencepost.engine.ticks import Ticks  # noqa: E402
from fencepost.ledger.claiming import claim  # noqa: E402
from fencepost.ledger.finishing import finish  # noqa: E402
from fencepost.ledger.ledger import open_ledger  # noqa: E402
from fencepost.ledger.looking import look  # noqa: E402
from fencepost.ledger.migrations import migrate  # noqa: E402
from fencepost.ledger.nodes import NewNode, join  # noqa: E402
from fencepost.ledger.parking import park  # noqa: E402
from fencepost.ledger.planning import plan  # noqa: E402
from fencepost.threaded import ThreadedRuntime  # noqa: E402
from testbed.postgres import Postgres  # noqa: E402

logging.getLogger("fencepost").setLevel(logging.ERROR)

T = TypeVar("T")
SCATTERED = ("claim keyed scattered", "finish keyed scattered", "plan scattered")
CALLS = ("claim", "finish", "claim keyed", "finish keyed", "plan", "look", *SCATTERED)
TARGETED = ("claim", "claim keyed", "plan")
TARGET = 1.5
BATCH = 100
PLANNED = 200
SERVER = {"shared_buffers": "1GB", "max_wal_size": "16GB", "checkpoint_timeout": "1h"}
SMALL = 500
JOBS = 100
HORIZON_US = 2_000_000
WEEK_US = 7 * 86_400 * 1_000_000
POLICY = Policy.of("scheduled", overlap="allow")
STATES = ("analyzed while empty", "analyzed")


def main() -> None:
    options = _options()
    with Postgres(settings=SERVER) as server:
        year = measure_year(server.url, options)
        if options.only_year:
            _end(options, [], {"year": year}, worst=0.0)
            return
        fields = [Field(server.url, size, has_checkpoint=options.checkpoint) for size in options.sizes]
        for field in fields:
            _say(options, f"filling {field.size:,}: {field.fill():.0f} s")
        results: dict[str, Any] = {}
        for state in STATES:
            if state == "analyzed":
                for field in fields:
                    field.analyze()
            results[state] = measure(fields, options.rounds)
            _show(options, state, results[state], options.sizes)
    worst = max(results[state]["growth"][call] for state in STATES for call in TARGETED)
    _end(options, options.sizes, {**results, "year": year}, worst=worst)


def _end(options: argparse.Namespace, sizes: list[int], results: dict[str, Any], *, worst: float) -> None:
    """Print the results for programs, and exit in vain if a target was missed."""
    if options.json:
        print(json.dumps({"sizes": sizes, "growth": worst, "target": TARGET, **results}))
    if worst > TARGET:
        sys.exit(f"claim or plan cost {worst:.2f} times as much with {sizes[-1]:,} as with {sizes[0]:,}")
    if max(results["year"]["growth"].values()) > TARGET:
        sys.exit(f"a year of a job without a node: {results['year']['growth']} times the cost of an empty ledger")


def measure(fields: list[Field], rounds: int) -> dict[str, Any]:
    """Let all take turns; return the microseconds of each call by size, and the growth from first to last."""
    times: dict[str, list[list[float]]] = {call: [[] for _ in fields] for call in CALLS}
    for turn in range(rounds + 1):
        order = list(enumerate(fields))
        for index, field in order if turn % 2 else reversed(order):
            for call, seconds in field.turn().items():
                if turn:  # the first prepares statements and fills caches
                    times[call][index].append(seconds * 1e6)
    us = {call: [_lower_quartile(each) for each in times[call]] for call in CALLS}
    return {
        "us": {call: [round(each) for each in us[call]] for call in CALLS},
        "growth": {call: round(us[call][-1] / us[call][0], 2) for call in CALLS},
    }


def _lower_quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0] if len(values) > 1 else values[0]


class Field:
    """A database with so many schedules and finished runs."""

    def __init__(self, server_url: str, size: int, *, has_checkpoint: bool) -> None:
        self.size = size
        self._has_checkpoint = has_checkpoint
        name = f"scale_{size}"
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        self._url = server_url.removesuffix("/postgres") + f"/{name}"
        self._ledger = open_ledger(self._url, ThreadedRuntime())
        migrate(self._ledger)
        self._connection = self._ledger.connect("bench")
        self._sql = psycopg.connect(self._url, autocommit=True)
        self._ticks = Ticks(horizon_us=HORIZON_US, emit=lambda event: None, is_believed=lambda now_us: True)
        self._jobs = tuple(f"job-{number}" for number in range(JOBS))
        self._random = random.Random(size)
        self._filled = 0

    def fill(self) -> float:
        """Fill the tables; return how many seconds that took."""
        began_at = time.perf_counter()
        for table in ("run", "attempt", "schedule", "job", "exclusive", "node"):
            self._sql.execute(f"ALTER TABLE fencepost_{table} SET (autovacuum_enabled = off)")
        self._sql.execute("ANALYZE")
        policy = POLICY.to_json()
        with self._sql.cursor() as cursor:
            cursor.executemany(_JOB, [(name, policy) for name in self._jobs])
        self._fill_up(1, SMALL)
        for _ in range(4):
            self.turn()
        self._fill_up(SMALL + 1, self.size)
        self._warm_up()
        return time.perf_counter() - began_at

    def _fill_up(self, first: int, last: int) -> None:
        self._sql.execute(_SCHEDULES, (JOBS, schedule_to_json(every("7d")), first, last))
        self._sql.execute(_RUNS, (JOBS, self.size, first, last))
        self._sql.execute(_ATTEMPTS, (first, last))
        self._sql.execute(_KEYS, (first, last))
        self._sql.execute(_NEXT_ID, (last,))
        self._filled = last

    def analyze(self) -> None:
        """Do what autovacuum would have done by now. Forget the plans that were made without."""
        self._sql.execute("VACUUM ANALYZE")
        self._warm_up()
        self._connection.rest()

    def _warm_up(self) -> None:
        """Have everything in the server's memory."""
        self._sql.execute("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
        if self._has_checkpoint:
            self._sql.execute("CHECKPOINT")
        self._sql.execute(_PREWARM)

    def turn(self) -> dict[str, float]:
        """Do each call a few times, and return the seconds that each took (the median, where there are several)."""
        times: dict[str, list[float]] = {call: [] for call in CALLS}
        kinds = {
            "": [None] * 5 * BATCH,
            " keyed": self._neighbours("key", 5 * BATCH),
            " keyed scattered": self._scattered("key", 5 * BATCH),
        }
        for kind, keys in kinds.items():
            self._sql.execute(_DUE_RUNS, (JOBS, keys))
            gc.collect()
            for _ in range(5):
                seconds, claimed = _timed(self._claim)
                times[f"claim{kind}"].append(seconds)
                times[f"finish{kind}"].append(_timed(lambda claimed=claimed: self._finish(claimed))[0])
                times["look"].append(_timed(self._look)[0])
        for kind, schedules in (("", self._neighbours), (" scattered", self._scattered)):
            self._sql.execute(_DUE_SCHEDULES, (WEEK_US, schedules("schedule", PLANNED)))
            seconds, planned = _timed(self._plan)
            if planned != PLANNED:
                raise RuntimeError(f"{planned} of {PLANNED} schedules were planned")
            times[f"plan{kind}"].append(seconds)
        self._tidy()
        return {call: statistics.median(each) for call, each in times.items()}

    def _neighbours(self, what: str, count: int) -> list[str]:
        first = self._random.randint(1, self._filled + 1 - count)
        return [f"{what}-{number}" for number in range(first, first + count)]

    def _scattered(self, what: str, count: int) -> list[str]:
        return [f"{what}-{number}" for number in self._random.sample(range(1, self._filled + 1), count)]

    def _claim(self) -> list[Claim]:
        claimed = claim(
            self._connection, node="bench", jobs=self._jobs, queues=("default",), limit=BATCH, decide=_may_start
        ).claims
        if len(claimed) != BATCH:
            raise RuntimeError(f"{len(claimed)} of {BATCH} were claimed")
        return claimed

    def _finish(self, claims: list[Claim]) -> None:
        endings = [_ending(each) for each in claims]
        refused = finish(self._connection, endings).refused
        if refused:
            raise RuntimeError(f"refused: {refused}")

    def _look(self) -> None:
        look(self._connection, node="bench", queues=("default",), jobs=self._jobs)

    def _plan(self) -> int:
        return plan(self._connection, horizon_us=HORIZON_US, limit=PLANNED, decide=self._ticks.plan).runs

    def _tidy(self) -> None:
        self._sql.execute("DELETE FROM fencepost_attempt WHERE run_id > %s", (self._filled,))
        self._sql.execute("DELETE FROM fencepost_run WHERE id > %s", (self._filled,))


MINUTES = 365 * 24 * 60


def measure_year(server_url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Let an empty ledger, and one with a year of a minutely job that no node has, take turns."""
    yards = [Yard(server_url, "year_empty", 0), Yard(server_url, "year_full", MINUTES)]
    before = {call: round(us) for call, us in yards[1].turn().items()}
    took_s = yards[1].do_as_nodes_do()
    times: dict[str, list[list[float]]] = {call: [[], []] for call in before}
    for turn in range(options.rounds * 4 + 1):
        for index, yard in enumerate(yards):
            for call, us in yard.turn().items():
                if turn:
                    times[call][index].append(us)
    us = {call: [round(_lower_quartile(each)) for each in both] for call, both in times.items()}
    growth = {call: round(full / empty, 2) for call, (empty, full) in us.items()}
    _say(options, f"a year of a minutely job without a node ({took_s:.0f} s to set its runs aside): µs per call")
    for call, (empty, full) in us.items():
        _say(
            options, f"  {call:22} before {before[call]:>8,}; empty {empty:>6,}, full {full:>6,}   × {growth[call]:.2f}"
        )
    return {"us": us, "before": before, "growth": growth}


class Yard:
    """A ledger on which a node of one program lives, and `minutes` due times of another program's job are queued."""

    def __init__(self, server_url: str, name: str, minutes: int) -> None:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        url = server_url.removesuffix("/postgres") + f"/{name}"
        self._ledger = open_ledger(url, ThreadedRuntime())
        migrate(self._ledger)
        self._connection = self._ledger.connect("bench")
        self._sql = psycopg.connect(url, autocommit=True)
        self._sql.execute(_JOB, ("gone", POLICY.to_json()))
        self._sql.execute("UPDATE fencepost_job SET seen_at = 0")
        join(self._ledger, NewNode("n", "n", "g", 1, 0, "bench/0004", 1, ("default",), ("job-0",)))
        if minutes:
            self._sql.execute(_YEAR_SCHEDULE, (schedule_to_json(every("1m")),))
            self._sql.execute(_YEAR, (minutes,))
            self._sql.execute("VACUUM ANALYZE")

    def do_as_nodes_do(self) -> float:
        """Do what a living node does about schedules that no node serves; return how many seconds that took."""
        began_at = time.perf_counter()
        serving = Serving(lambda event: None)
        serving.read(self._connection, 0.0)
        while park(self._connection).runs:  # a batch each time that the nodes are read
            pass
        ticks = Ticks(
            horizon_us=HORIZON_US,
            emit=lambda event: None,
            is_believed=lambda now_us: True,
            is_served=serving.is_served,
        )
        if plan(self._connection, horizon_us=HORIZON_US, limit=PLANNED, decide=ticks.plan).runs:
            raise RuntimeError("a schedule that no node serves was planned")
        seconds = time.perf_counter() - began_at
        self._sql.execute("VACUUM ANALYZE")  # as autovacuum does
        return seconds

    def turn(self) -> dict[str, float]:
        """Return the microseconds of an empty claim and of a look."""
        jobs = ("job-0",)
        asked: dict[str, Any] = {"jobs": jobs, "queues": ("default",)}
        calls: dict[str, Callable[[], Any]] = {
            "empty claim": lambda: claim(self._connection, node="n", limit=BATCH, decide=_may_start, **asked),
            "look": lambda: look(self._connection, node="n", **asked),
        }
        return {name: min(_timed(call)[0] for _ in range(3)) * 1e6 for name, call in calls.items()}


_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_JOB = f"""
INSERT INTO fencepost_job (name, type, policy, signature, generation, seen_at)
VALUES (%s, 'scheduled', %s, '{{}}', 0, {_NOW})
"""
_SCHEDULES = f"""
INSERT INTO fencepost_schedule
  (id, job, spec, params, origin, generation, planned_through, next_due_at, created_at, updated_at)
SELECT 'schedule-' || n, 'job-' || n %% %s, %s, '{{}}', 'runtime', 0, t.now, t.now + 86400000000 + n, t.now, t.now
FROM generate_series(%s::bigint, %s::bigint) n, (SELECT {_NOW} AS now) t
"""
# One finished run per schedule, as if each had been due once in the last day.
_RUNS = f"""
INSERT INTO fencepost_run
  (id, job, type, state, schedule, origin_key, first_due_at, due_at, ticks, params, params_hash, priority, queue,
   attempts, failures, crashes, node, token, created_at, available_at, started_at, ended_at, generation)
SELECT n, 'job-' || n %% %s, 'scheduled', 'succeeded', 'schedule-' || n, 'tick:' || due || ':schedule-' || n, due, due,
  1, '{{}}', '0123456789abcdef', 0, 'default', 1, 0, 0, 'somebody', due, due, due, due + 1000, due + 2000, 0
FROM (SELECT n, {_NOW} - 86400000000 + n * (86400000000 / %s) AS due FROM generate_series(%s::bigint, %s::bigint) n) t
"""
_ATTEMPTS = """
INSERT INTO fencepost_attempt (run_id, number, node, token, started_at, ended_at, took_us, outcome)
SELECT id, 1, node, token, started_at, ended_at, 100, 'succeeded' FROM fencepost_run WHERE id BETWEEN %s AND %s
"""
_PREWARM = """
SELECT sum(pg_prewarm(c.oid)) FROM pg_class c WHERE c.relname LIKE 'fencepost%' AND c.relkind IN ('r', 'i')
"""
_NEXT_ID = "SELECT setval(pg_get_serial_sequence('fencepost_run', 'id'), %s)"
_YEAR_SCHEDULE = f"""
INSERT INTO fencepost_schedule
  (id, job, spec, params, origin, generation, planned_through, next_due_at, created_at, updated_at)
SELECT 'gone', 'gone', %s, '{{}}', 'code', 0, {_NOW}, {_NOW} - 1, 0, 0
"""
_YEAR = f"""
INSERT INTO fencepost_run
  (job, type, state, schedule, origin_key, first_due_at, due_at, ticks, params, params_hash, priority, queue,
   attempts, failures, crashes, token, created_at, available_at, generation)
SELECT 'gone', 'scheduled', 'queued', 'gone', 'tick:' || due || ':gone', due, due,
  1, '{{}}', '0123456789abcdef', 0, 'default', 0, 0, 0, 0, due, due, 0
FROM (SELECT {_NOW} - n * 60000000 AS due FROM generate_series(1, %s::bigint) n) t
"""
_KEYS = """
INSERT INTO fencepost_exclusive (key, token) SELECT 'key-' || n, 1 FROM generate_series(%s::bigint, %s::bigint) n
"""
_DUE_RUNS = f"""
INSERT INTO fencepost_run
  (job, type, state, ticks, params, params_hash, priority, queue, exclusive_key, attempts, failures, crashes, token,
   created_at, available_at, generation)
SELECT 'job-' || n %% %s, 'manual', 'queued', 1, '{{}}', '0123456789abcdef', 0, 'default', key, 0, 0, 0, 0,
  {_NOW}, {_NOW}, 0
FROM unnest(%s::text[]) WITH ORDINALITY AS k(key, n)
"""
_DUE_SCHEDULES = f"""
UPDATE fencepost_schedule SET planned_through = {_NOW} - %s, next_due_at = {_NOW} - 1 WHERE id = ANY(%s)
"""


def _may_start(job: str, **circumstances: Any) -> Decision:
    return decide(Overlap.FORBID, **circumstances)


def _ending(claim: Claim) -> Ending:
    return Ending(claim.run_id, claim.attempt, claim.token, "succeeded", "succeeded", exclusive_key=claim.exclusive_key)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began_at = time.perf_counter()
    result = work()
    return time.perf_counter() - began_at, result


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as the last line, as JSON")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=25, help="how many turns each has")
    parser.add_argument("--only-year", action="store_true", help="only the year of a job without a node")
    parser.add_argument("--checkpoint", action="store_true", help="make a checkpoint before measuring")
    return parser.parse_args()


def _show(options: argparse.Namespace, state: str, result: dict[str, Any], sizes: list[int]) -> None:
    _say(options, f"{state}: µs per call with {', '.join(f'{size:,}' for size in sizes)}; growth")
    for call in CALLS:
        figures = "  ".join(f"{us:>8,}" for us in result["us"][call])
        growth = result["growth"][call]
        _say(
            options,
            f"  {call:22} {figures}   × {growth:.2f}{'  ← too much' if growth > TARGET and call in TARGETED else ''}",
        )


def _say(options: argparse.Namespace, line: str) -> None:
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    main()
