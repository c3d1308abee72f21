"""Does a migration keep anyone from working? Claims go on while the tables of a large ledger are migrated.

    python bench/migrate.py [--json] [--runs 10000000] [--only postgresql]

On private PostgreSQL and MariaDB servers, each with so many runs, made inside the server by the tables of an older
revision. Then a claim loop works, by the calls that nodes make (enqueue, claim, finish, in batches of ten, on two
connections), while ``fencepost migrate`` runs as a process of its own. Printed is the longest time that one call took
meanwhile, beside the longest one before, without a migration.

- *from 0004*: the step before this version. It adds tables and columns.
- *from 0003*: the step before that one. It also adds indexes to the table of runs, which have to be built while nodes
  write to it. Its columns are there already, because the calls of today need them.
- *blocked*: from 0004, while a transaction of somebody else has read a table that the migration has to change, for five
  more seconds from when the migration waits for it. All claims wait behind the migration, so it gives up its place
  after a moment, and tries again until it succeeds.

Target: no call waits longer than 1 s.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stores import in_project_environment

in_project_environment()

from kept_history import EXECUTE, KINDS, without_indexes  # noqa: E402
from made_history import Filling, Words  # noqa: E402
from nodes import until  # noqa: E402

from fencepost.core.overlap import START, Decision  # noqa: E402
from fencepost.core.runs import Ending, Requested  # noqa: E402
from fencepost.ledger import migrations, requests  # noqa: E402
from fencepost.ledger.claiming import claim  # noqa: E402
from fencepost.ledger.finishing import finish  # noqa: E402
from fencepost.ledger.ledger import Ledger, open_ledger  # noqa: E402
from fencepost.ledger.migrations import running  # noqa: E402
from fencepost.threaded import ThreadedRuntime  # noqa: E402

LONGEST_S = 1.0
LOOPS, BATCH = 2, 10
CALM_S = 5.0
HELD_S = 5.0
LATER = (
    "account", "permission", "login", "api_token", "answer", "audit", "audit_head", "log_chunk", "run_search",
    "job_hour", "acknowledged", "pause",
)  # fmt: skip
"""The tables that step 0005 adds."""


def main() -> None:
    options = _options()
    load = round(os.getloadavg()[0], 1)
    _say(options, f"load before: {load}")
    results: dict[str, Any] = {}
    for place in options.only:
        words, server = KINDS[place]
        with server() as started:
            results[place] = measured(words, started.url, options)
    missed = [
        f"{place}: {what} {each['longest_s']:.2f} s" for place, found in results.items() for what, each in found.items()
        if each["longest_s"] > LONGEST_S
    ]  # fmt: skip
    if options.json:
        print(json.dumps({"runs": options.runs, "load_before": load, **results, "missed": missed}))
    if missed:
        sys.exit("calls waited longer than a second: " + "; ".join(missed))


def measured(words: Words, url: str, options: argparse.Namespace) -> dict[str, Any]:
    execute = EXECUTE[words.name](url)
    ledger = open_ledger(url, ThreadedRuntime())
    began_at = time.monotonic()
    migrations.migrate(ledger)
    _earlier(execute, words, "0003")
    again = without_indexes(words.name, execute, ("run",))
    Filling(words, execute, time.time_ns() // 1000).runs_alone(options.runs)
    for statement in again:
        execute(statement)
    _say(options, f"\n{words.name}: {options.runs:,} runs made in {time.monotonic() - began_at:.0f} s")
    found = {}
    with Claims(ledger) as claims:
        time.sleep(CALM_S)
        calm_s = claims.longest_s()
        for what, step, held_s in (("from 0003", "0003", 0.0), ("from 0004", "0004", 0.0), ("blocked", "0004", HELD_S)):
            _earlier(execute, words, step)
            claims.longest_s()
            with _held(words, url, held_s):
                took_s = _migrated(url)
            longest_s, calls = claims.longest_s(), claims.calls
            found[what] = {"longest_s": round(longest_s, 3), "took_s": round(took_s, 2), "calm_s": round(calm_s, 3)}
            _check(ledger)
            _say(
                options,
                f"  {what:10} {took_s:6.1f} s; the longest call {longest_s:.2f} s of {LONGEST_S:g} s; "
                f"{calm_s:.2f} s without a migration ({calls} calls in all)",
            )
    ledger.close()
    return found


def _migrated(url: str) -> float:
    """Run the command; return how long it took."""
    began_at = time.monotonic()
    command = [str(Path(sys.executable).parent / "fencepost"), "migrate", "--ledger", url]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"fencepost migrate failed: {ended.stdout}{ended.stderr}")
    return time.monotonic() - began_at


def _check(ledger: Ledger) -> None:
    """Hold the ledger to it: it has the newest tables, and all its indexes are there and valid."""
    if migrations.current_revision(ledger) != migrations.NEWEST:
        raise RuntimeError(f"the tables are of revision {migrations.current_revision(ledger)}")
    if ledger.dialect.name == "postgresql":
        [(invalid,)] = EXECUTE["postgresql"](str(ledger.url))("SELECT count(*) FROM pg_index WHERE NOT indisvalid")
        if invalid:
            raise RuntimeError(f"{invalid} indexes are not valid")


def _earlier(execute: Any, words: Words, step: str) -> None:
    """Make the tables what they were at an earlier step, as far as the migration is concerned."""
    on = (lambda table: f" ON fencepost_{table}") if words.name == "mysql" else lambda _: ""
    there = "IF EXISTS "
    for table in LATER:
        execute(f"DROP TABLE IF EXISTS fencepost_{table}")
    for table, column in (
        ("schedule", "paused_until"),
        ("job", "parent"),
        ("node", "drain_asked_at"),
        ("node", "drain_by"),
    ):
        execute(f"ALTER TABLE fencepost_{table} DROP COLUMN {there}{column}")
    revision = next(each for each in running.known_revisions() if each.startswith(step))
    if step == "0003":
        for table, index in (("run", "repetition"), ("run", "root"), ("run", "parked"), ("schedule", "ready")):
            execute(f"DROP INDEX {there}fencepost_{table}_{index}{on(table)}")
    execute(f"UPDATE fencepost_version SET version_num = '{revision}'")


@contextmanager
def _held(words: Words, url: str, seconds: float) -> Iterator[None]:
    """Have read a table for a while, in a transaction of somebody else."""
    if not seconds:
        yield
        return
    held = threading.Event()

    def hold() -> None:
        execute = EXECUTE[words.name](url)
        execute("BEGIN")
        execute("SELECT count(*) FROM fencepost_node")  # as every claim does
        held.set()
        looks = EXECUTE[words.name](url)
        until(lambda: bool(looks(_WAITING[words.name])), 120, "the migration waits for a table", every_s=0.02)
        time.sleep(seconds)
        execute("COMMIT")

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait(30)
    yield
    holding.join()


_WAITING = {
    "postgresql": "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'",
    "mysql": "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock'",
}


class Claims:
    """Loops that enqueue, claim and finish, each on a connection of its own, and remember the longest call."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._longest = 0.0
        self.calls = 0
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._loop, args=(number,)) for number in range(LOOPS)]

    def __enter__(self) -> Claims:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def longest_s(self) -> float:
        """Return the longest call since this was last asked, those that are not over included."""
        with self._lock:
            longest, self._longest = self._longest, 0.0
        return longest

    def _loop(self, number: int) -> None:
        connection, queue = self._ledger.connect(f"claims-{number}"), f"queue-{number}"
        asked: dict[str, Any] = {"node": "bench", "jobs": ("job-0001",), "queues": (queue,), "limit": BATCH}
        try:
            while not self._is_over.is_set():
                self._timed(requests.enqueue, self._ledger, [Requested("job-0001", "manual", queue=queue)] * BATCH)
                claims = self._timed(claim, connection, decide=_start, **asked).claims
                endings = [Ending(each.run_id, each.attempt, each.token, "succeeded", "succeeded") for each in claims]
                self._timed(finish, connection, endings)
        except BaseException as error:
            self._errors.append(error)
            raise
        finally:
            connection.rest()

    def _timed(self, call: Any, *given: Any, **named: Any) -> Any:
        began_at = time.monotonic()
        result = call(*given, **named)
        with self._lock:
            self._longest = max(self._longest, time.monotonic() - began_at)
            self.calls += 1
        return result


def _start(*_: object, **__: object) -> Decision:
    return START


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as the last line, as JSON")
    parser.add_argument("--runs", type=int, default=10_000_000, help="how many runs there are")
    parser.add_argument("--only", nargs="+", default=("postgresql", "mysql"), choices=("postgresql", "mysql"))
    return parser.parse_args()


def _say(options: argparse.Namespace, line: str) -> None:
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    main()
