"""Are the pages fast where history is long? Every page and filter, with 10,000,000 runs, as admin and as a viewer.

    python bench/web.py [--json] [--runs 10000000] [--only postgresql] [--rounds 20]

On private servers, each with months of history of 1,000 jobs (`made_history.py`), which is made once inside the server
and kept outside the tree: PostgreSQL and MariaDB with 10,000,000 runs, SQLite with 1,000,000. ``--runs 1000000`` is the
quick form. The pages are the real ASGI application, asked in this process, with logins.

- *pages*: each page and filter, in turns, as admin and as a viewer of 3 of the 1,000 jobs, one with a tenth of all
  runs, one with some and one with few. Printed are the median and the p95 of the rounds.
- *rows*: the most rows that one statement of each page has read: on PostgreSQL by EXPLAIN ANALYZE, on MariaDB by the
  server's counters (Handler_read), on SQLite by the steps of its machine, of which a row takes two or more.
- *search*: a filter that no index answers. It must end after about 150 ms and say how far it came.
- *tabs*: 100 open tabs on the page of runs, of five people, all of them streams that fetch the page's part at each
  hint: statements to the ledger per second, idle and while `web_load.py` makes 1,000 runs a second.
- *change*: from the commit of a change to the arrival of a part that shows it.
- *first page*: the page, its style and its script, each compressed.

Targets: p95 ≤ 200 ms, ≤ 100,000 rows, search ≤ 150 ms + one step, ≤ 4 statements/s under load and ≤ 2 idle,
change ≤ 1.5 s, first page ≤ 60 kB.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from stores import in_project_environment

in_project_environment()

import kept_history  # noqa: E402
import web_tabs  # noqa: E402
from web_visits import Pages, Person, pages  # noqa: E402

P95_MS, ROWS, SEARCH_MS = 200.0, 100_000, 150.0
BUSY_PER_S, IDLE_PER_S, CHANGE_S, FIRST_KB = 4.0, 2.0, 1.5, 60.0
STEP_MS = 150.0  # what a search may take beyond its time: the page itself, and the step in which time ran out
SQLITE_RUNS = 1_000_000
OFTEN, SOMETIMES, SELDOM = "job-0000", "job-0200", "job-0990"
PLACES = tuple(kept_history.FILLED)
FIRST_PAGE = ("/", "/static/fencepost.css", "/static/fencepost.js")


@dataclass(frozen=True)
class Figure:
    """What was measured, beside its target. Where `at_least` is set, more is better."""

    place: str
    what: str
    value: float
    target: float
    unit: str
    note: str = ""

    @property
    def is_kept(self) -> bool:
        return self.value <= self.target


def main() -> None:
    options = _options()
    load = round(os.getloadavg()[0], 1)
    _say(options, f"load before: {load}")
    figures: list[Figure] = []
    for place in options.only:
        runs = min(options.runs, SQLITE_RUNS) if place == "sqlite" else options.runs
        with kept_history.FILLED[place](runs) as url:
            _say(options, f"\n{place}, {runs:,} runs")
            figures += measured(place, url, runs, options)
    missed = [
        f"{each.place}: {each.what} {each.value:g} {each.unit}, not {each.target:g}"
        for each in figures
        if not each.is_kept
    ]
    if options.json:
        shown = [asdict(each) | {"is_kept": each.is_kept} for each in figures]
        print(json.dumps({"runs": options.runs, "load_before": load, "figures": shown, "missed": missed}))
    if missed:
        sys.exit("short of the target:\n  " + "\n  ".join(missed))


def measured(place: str, url: str, runs: int, options: argparse.Namespace) -> list[Figure]:
    """Measure everything on one database."""
    found: list[Figure] = []

    def note(what: str, value: float, target: float, unit: str, more: str = "") -> None:
        figure = Figure(place, what, round(value, 2), target, unit, more)
        found.append(figure)
        mark = "" if figure.is_kept else "  <-- short"
        _say(options, f"  {what:58} {figure.value:>10,g} {unit:6} of {target:>7,g}  {more[:200]}{mark}")

    with pages(url) as site:
        people = {
            "admin": Person(site.app, "ada", "admin"),
            "viewer": Person(site.app, "vic", "viewer", [OFTEN, SOMETIMES, SELDOM]),
        }
        asked = {who: addresses(site, runs, OFTEN, is_admin=who == "admin") for who in people}
        with asyncio.Runner() as loop:
            for (who, target), (most, sql) in loop.run(rows_read(site, people, asked)).items():
                if most > ROWS // 10 or not options.brief:
                    note(f"rows {who} {target}", most, ROWS, "rows", sql if most > ROWS else "")
            for (who, target), times in loop.run(timed(site, people, asked, options.rounds)).items():
                note(f"p95 {who} {target}", _p95(times), P95_MS, "ms", f"median {statistics.median(times):.0f}")
            for what, took, told in loop.run(searched(site, people["admin"])):
                note(f"search {what}", took, SEARCH_MS + STEP_MS, "ms", told)
            note("first page", loop.run(first_page(site, people["admin"])), FIRST_KB, "kB")
        if not options.no_tabs:
            for what, value, target, unit in web_tabs.measured(site, url, options.tab_seconds):
                note(what, value, target, unit)
    return found


def addresses(site: Pages, runs: int, job: str, *, is_admin: bool) -> list[str]:
    """Return every page and filter. What is not for viewers is left out for them."""
    given_up = site.app.operations.runs(states=("dead",), limit=1000)
    dead = next(each for each in given_up if each.job == job)
    [live] = site.app.operations.runs(states=("running",), limit=1)
    middle = site.app.operations.runs(job=job, before_id=runs // 2, limit=1)[0].id
    finds = [
        "", f"job:{job}", f"job:{SELDOM}", "state:running", "state:queued", "state:waiting", "waits:person",
        "waits:key",
        "state:dead", f"job:{job} state:dead", f"job:{SELDOM} state:dead", "state:dead since:24h", "since:24h",
        f"job:{job} since:24h", "until:90d", f"schedule:{job}", f"retry-of:{middle}", f"id:{middle}", f"{job}",
        f"schedule:{job} since:7d",
    ]  # fmt: skip
    found = ["/", *(f"/runs?q={each.replace(' ', '+')}" for each in finds)]
    found += [f"/runs?before={runs // 2}", f"/runs?q=job:{job}&before={runs // 2}", "/runs?tz=own"]
    found += [f"/runs/{middle}", f"/runs/{dead.id}", "/jobs", "/jobs?q=99", f"/jobs/{job}", f"/jobs/{SELDOM}"]
    found += [f"/jobs/{job}/trigger"] if is_admin else []
    found += [f"/runs/{live.id}"] if is_admin else []
    found += [
        "/why",
        f"/why?job={job}",
        f"/why?job={job}&at=60d",
        "/schedules",
        f"/schedules/{job}",
        "/nodes",
        "/nodes?all=1",
    ]
    if is_admin:
        found += [
            "/audit",
            "/audit?who=user:7",
            f"/audit?job={job}",
            "/audit?act=run+retried",
            "/audit?act=prune+audit",
        ]
        found += [f"/audit?run={dead.id}", "/audit?before=50", "/access"]
    return found


Asked = dict[str, list[str]]
By = dict[tuple[str, str], Any]


async def rows_read(site: Pages, people: dict[str, Person], asked: Asked) -> By:
    """Return, for each page, the statement that read most rows."""
    found: By = {}
    for who, targets in asked.items():
        cookie = people[who].login()
        for target in targets:
            site.watch.reads = []
            status, body = await site.get(target, cookie)
            reads, site.watch.reads = site.watch.reads, None
            if status != 200:
                raise RuntimeError(f"{target} as {who}: {status} {body[-1500:].decode()}")
            found[who, target] = max(reads, default=(0, ""))
    return found


async def timed(site: Pages, people: dict[str, Person], asked: Asked, rounds: int) -> By:
    """Return the milliseconds of each page in each round. Each page has a login of its own, so each has to be read."""
    cookies = {(who, target): people[who].login() for who in asked for target in asked[who]}
    times: By = {key: [] for key in cookies}
    for _ in range(rounds):  # `rows_read` has asked for each page once, so the caches are as full as they get
        for (who, target), cookie in cookies.items():
            began_at = time.perf_counter()
            status, body = await site.get(target, cookie)
            if status != 200:
                raise RuntimeError(f"{target} as {who}: {status} {body[-1500:].decode()}")
            times[who, target].append((time.perf_counter() - began_at) * 1000)
    return times


async def searched(site: Pages, person: Person) -> list[tuple[str, float, str]]:
    """Return how long searches without an index took, and what they said."""
    found = []
    for find in (
        "by:user:nobody",
        "key:nothing",
        "node:node-0059+by:user:rare",
        "queue:nowhere",
        "state:cancelled+by:user:nobody",
    ):
        cookie, times = person.login(), []
        for _ in range(5):
            began_at = time.perf_counter()
            status, body = await site.get(f"/runs?q={find}", cookie)
            times.append((time.perf_counter() - began_at) * 1000)
        text = body.decode()
        place = text.lower().find("looked through")
        told = " ".join(text[place : place + 120].split()) if place >= 0 else f"status {status}, says nothing"
        found.append((find, statistics.median(times), told))
    return found


async def first_page(site: Pages, person: Person) -> float:
    """Return the kilobytes of the first page with its style and script, compressed."""
    cookie = person.login()
    bodies = [(await site.get(each, cookie))[1] for each in FIRST_PAGE]
    return sum(len(gzip.compress(each)) for each in bodies) / 1000


def _p95(times: list[float]) -> float:
    return sorted(times)[max(0, -(-95 * len(times) // 100) - 1)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as the last line, as JSON")
    parser.add_argument(
        "--runs", type=int, default=10_000_000, help="how long the history is; SQLite has 1,000,000 at most"
    )
    parser.add_argument("--rounds", type=int, default=20, help="how often each page is asked for")
    parser.add_argument("--only", nargs="+", default=PLACES, choices=PLACES, help="only these databases")
    parser.add_argument("--brief", action="store_true", help="leave out statements that read few rows")
    parser.add_argument("--no-tabs", action="store_true", help="leave out what is measured with open tabs")
    parser.add_argument("--tab-seconds", type=float, default=20.0, help="how long tabs are open")
    return parser.parse_args()


def _say(options: argparse.Namespace, line: str) -> None:
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    main()
