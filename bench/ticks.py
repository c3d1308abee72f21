"""Are ticks on time? A thousand schedules due at the same instants, every five seconds, on two nodes; and idle nodes.

    python bench/ticks.py [--json] [--seconds 60] [--runner process|thread] [--schedules 1000] [--nodes 2]

On a private PostgreSQL as shipped. Nodes are real processes, ``fencepost run``. The jobs have the default policy of
scheduled jobs (a tick is not started while the one before it runs), and do nothing but note the time in a file.

- *duplicates* and *missed*: the due times of a five second grid are enumerated here, from the clock alone, and compared
  with what the functions noted (each due time of each schedule once, and nothing else) and with the ledger (one run, of
  one tick, succeeded, at its first attempt, which has one row).
- *lateness*: start less due time, as the ledger has it (`started_at`), and as the functions saw it. The clocks of
  server and nodes are one here. Target: p99 at most 100 ms, for both.
- *idle*: two nodes with a job and no schedule. Statements are counted in the server's log (``log_statement = all``:
  BEGIN and COMMIT count, too), connections in `pg_stat_activity`. Targets per node: at most one statement a second, at
  most four connections.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from stores import in_project_environment

in_project_environment()

import nodes  # noqa: E402

from testbed.postgres import Postgres  # noqa: E402

LATE_MS = 100
STATEMENTS_PER_S = 1.0
CONNECTIONS = 4
SETTLE_S = 10
SECOND_US = 1_000_000
Tick = tuple[str, int]


def main() -> None:
    options = _options()
    result: dict[str, Any] = {"schedules": options.schedules, "nodes": options.nodes, "runner": options.runner}
    if options.seconds:
        with Postgres() as server:
            result |= ticks(server.url, options)
        _show_ticks(options, result)
    if options.idle_seconds:
        result["idle"] = idle(options)
        _show_idle(options, result["idle"])
    missed = shortfalls(result)
    if options.json:
        print(json.dumps({**result, "shortfalls": missed}))
    if missed:
        sys.exit("short of the target: " + "; ".join(missed))


# -- ticks -----------------------------------------------------------------------------------------------------------


def ticks(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Let the nodes work for a while; return what became of every due time in it."""
    nodes.opened(url).close()
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            "TICKS_FOLDER": folder,
            "TICKS_SCHEDULES": str(options.schedules),
            "TICKS_EVERY": f"{options.every}s",
            "TICKS_OVERLAP": options.overlap,
        }
        with nodes.nodes(options.nodes, "ticking:app", [url], *_runner(options), variables=variables):
            first_s = _next_due_s(options.every, 2 * options.every)
            last_s = first_s + options.seconds
            # The last due time is before `last_s`; a moment more, so that what comes late is late and not missed.
            time.sleep(max(0.0, last_s + options.every / 2 - time.time()))
        called = read_calls(Path(folder))
    return judged(url, called, expected(url, options, first_s, last_s))


def expected(url: str, options: argparse.Namespace, first_s: int, last_s: int) -> set[Tick]:
    """Enumerate the due times of all schedules in [first, last), from nothing but the grid."""
    names = [name for (name,) in nodes.ask(url, "SELECT id FROM fencepost_schedule WHERE deleted_at IS NULL")]
    if len(names) != options.schedules:
        raise RuntimeError(f"{len(names)} schedules are on record, not {options.schedules}")
    return {(name, due_s * SECOND_US) for name in names for due_s in range(first_s, last_s, options.every)}


def read_calls(folder: Path) -> list[tuple[str, int, int]]:
    """Return what the functions noted: schedule, due time, time inside."""
    lines = [line.split() for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]
    return [(schedule, int(due_us), int(now_us)) for schedule, due_us, now_us in lines]


def judged(url: str, called: list[tuple[str, int, int]], due: set[Tick]) -> dict[str, Any]:
    """Compare what was due with what was called and what is on record."""
    first_us, last_us = min(at for _, at in due), max(at for _, at in due)
    calls = Counter((schedule, at) for schedule, at, _ in called if first_us <= at <= last_us)
    rows = nodes.ask(url, _RECORD.format(first_us=first_us, last_us=last_us))
    runs = Counter((schedule, at) for schedule, at, *_ in rows)
    in_order = {(schedule, at) for schedule, at, _, is_in_order, _ in rows if is_in_order}
    attempts = sum(row[4] for row in rows)
    return {
        "ticks": len(due),
        "duplicates": sum(calls.values()) - len(calls) + sum(runs.values()) - len(runs) + attempts - len(rows),
        "missed": len(due - calls.keys()) + len(due - in_order),
        "uncalled_for": len(calls.keys() - due) + len(runs.keys() - due),
        "late_ms": quantiles([started_at - at for _, at, started_at, _, _ in rows if started_at is not None]),
        "late_inside_ms": quantiles([now_us - at for _, at, now_us in called if first_us <= at <= last_us]),
    }


_RECORD = """
SELECT r.schedule, r.due_at, r.started_at,
  r.state = 'succeeded' AND r.ticks = 1 AND r.attempts = 1 AND r.crashes = 0 AND r.first_due_at = r.due_at,
  (SELECT count(*) FROM fencepost_attempt a WHERE a.run_id = r.id)
FROM fencepost_run r WHERE r.due_at BETWEEN {first_us} AND {last_us}
"""


def quantiles(late_us: list[int]) -> dict[str, float]:
    """Return the median, the 99th percentile and the largest, in milliseconds."""
    ordered = sorted(late_us) or [0]
    return {
        name: round(ordered[min(math.ceil(share * len(ordered)), len(ordered)) - 1] / 1_000, 1)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


def _next_due_s(every_s: int, from_now_s: float) -> int:
    return math.ceil((time.time() + from_now_s) / every_s) * every_s


# -- idle ------------------------------------------------------------------------------------------------------------


def idle(options: argparse.Namespace) -> dict[str, Any]:
    """Count what nodes with nothing to do ask of the server, and how many connections they have."""
    names = [f"node-{number}" for number in range(options.nodes)]
    with Postgres(settings={"log_statement": "all", "log_line_prefix": "%a | "}) as server:
        nodes.opened(server.url).close()
        urls = [f"{server.url}?application_name={name}" for name in names]
        with nodes.nodes(options.nodes, "noop:app", urls, *_runner(options)):
            time.sleep(SETTLE_S)
            before = server.log.stat().st_size
            most = _most_connections(server.url, options.idle_seconds)
            logged = server.log.read_bytes()[before:].decode(errors="replace")
    statements = Counter(re.findall(r"^(node-\d+) \| LOG:  (?:statement|execute)", logged, re.MULTILINE))
    return {
        "statements_per_s": {name: round(statements[name] / options.idle_seconds, 2) for name in names},
        "connections": {name: most[name] for name in names},
    }


def _most_connections(url: str, seconds: float) -> Counter[str]:
    most: Counter[str] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name, count in nodes.ask(url, "SELECT application_name, count(*) FROM pg_stat_activity GROUP BY 1"):
            most[name] = max(most[name], count)
        time.sleep(0.2)
    return most


# -- the rest --------------------------------------------------------------------------------------------------------


def _runner(options: argparse.Namespace) -> list[str]:
    return ["--threads"] if options.runner == "thread" else []


def shortfalls(result: dict[str, Any]) -> list[str]:
    """Say which targets were missed."""
    missed = [f"{result[what]} {what}" for what in ("duplicates", "missed", "uncalled_for") if result.get(what)]
    missed += [
        f"{what} p99 {result[what]['p99']} ms, not {LATE_MS}"
        for what in ("late_ms", "late_inside_ms")
        if what in result and result[what]["p99"] > LATE_MS
    ]
    found = result.get("idle", {"statements_per_s": {}, "connections": {}})
    for name, rate in found["statements_per_s"].items():
        if rate > STATEMENTS_PER_S:
            missed.append(f"{name} idle at {rate} statements/s, not {STATEMENTS_PER_S:g}")
    for name, count in found["connections"].items():
        if count > CONNECTIONS:
            missed.append(f"{name} idle with {count} connections, not {CONNECTIONS}")
    return missed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as the last line, as JSON")
    parser.add_argument("--seconds", type=int, default=60, help="how long ticks are observed; 0 leaves it out")
    parser.add_argument("--idle-seconds", type=float, default=20, help="how long idle nodes are; 0 leaves it out")
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--every", type=int, default=5, help="seconds between the due times of each")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--runner", choices=("process", "thread"), default="process", help="what executes the jobs")
    parser.add_argument("--overlap", default="", help="instead of the default: allow, queue, replace")
    return parser.parse_args()


def _show_ticks(options: argparse.Namespace, result: dict[str, Any]) -> None:
    _say(
        options,
        f"{result['ticks']:,} ticks of {options.schedules:,} schedules on {options.nodes} nodes ({options.runner}): "
        f"{result['duplicates']} duplicates, {result['missed']} missed, {result['uncalled_for']} uncalled for",
    )
    for what, where in (("late_ms", "in the ledger"), ("late_inside_ms", "in the function")):
        late = result[what]
        _say(options, f"late {where:15} p50 {late['p50']} ms, p99 {late['p99']} ms, max {late['max']} ms")


def _show_idle(options: argparse.Namespace, found: dict[str, Any]) -> None:
    for name, rate in found["statements_per_s"].items():
        _say(options, f"idle {name}: {rate} statements/s, at most {found['connections'][name]} connections")


def _say(options: argparse.Namespace, line: str) -> None:
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    main()
