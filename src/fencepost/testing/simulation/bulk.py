"""Bulk work in simulated clusters: a job in chunks and partitions, and what must have become of its input.

What it does is known beforehand, item by item, from the seed only: which keys there are, which of them are left out,
which cannot be processed, which the database refuses. `bulk_evidence` compares that with the final contents of the
tables, for the checker of bulk work. It uses none of the code that did the work.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from fencepost.app.bulk import declare_bulk
from fencepost.app.operations import Operations
from fencepost.bulk import keyset
from fencepost.core.policy import Policy
from fencepost.core.schedules.every import every
from fencepost.core.verdicts import Retry, Skip
from fencepost.engine.jobs import Jobs
from fencepost.engine.known_secrets import SecretSource, known_secret
from fencepost.engine.run import Run, attempt_of, current_run
from fencepost.ledger.ledger import Ledger
from fencepost.proof.evidence import JobRules
from fencepost.testing.simulation.scenario import LOAD, LOAD_EVERY_S, BulkWork

if TYPE_CHECKING:
    from fencepost.app.application import App
    from fencepost.testing.simulation.jobs import JobSite

PART = f"{LOAD}/part"
_RETRIES = 10  # faults fail attempts, too; a run that is given up leaves the rest of its input undone
_AGAIN = 0.03  # how often an item requests a retry
_ROWS = "SELECT id FROM sim_input WHERE id <= :most AND id > :after ORDER BY id LIMIT :limit"
_UNSETTLED = "SELECT id FROM sim_input WHERE is_settled = 0 AND id <= :most AND id > :after ORDER BY id LIMIT :limit"
_READ = {is_settling: keyset(query, key="id") for is_settling, query in ((False, _ROWS), (True, _UNSETTLED))}
_INSERT = "INSERT INTO sim_effect (resource, key, token, grant_id, run_id) VALUES (?, ?, ?, ?, ?)"
_SETTLE = "UPDATE sim_input SET is_settled = 1 WHERE id = ?"
_OPEN = ("waiting", "queued", "running")
_RUNS = (
    "SELECT id, job, state, params, window_end, created_at, result FROM fencepost_run WHERE job IN (?, ?) ORDER BY id"
)
_MARKS = "SELECT position, counts FROM fencepost_checkpoint WHERE name LIKE ? ORDER BY name"
_LETTERS = "SELECT item_key, run_id FROM fencepost_dead_letter ORDER BY id"


@dataclass(frozen=True, slots=True)
class BulkHost:
    """The part of an application that declaring a bulk job needs."""

    jobs: Jobs
    ledger: Ledger
    generation: int
    operations: Operations
    wake: Callable[[], None]
    secrets: SecretSource = known_secret

    @property
    def settings(self) -> BulkHost:
        """The settings: of these, the generation is asked for."""
        return self


def params_of(work: BulkWork, batch: str) -> dict[str, Any]:
    """Return the parameters of a run; `batch` says what it is for, "" that its window does."""
    return {"batch": batch, "most": work.keys[-1]}


def policy(work: BulkWork | None = None) -> Policy:
    """Return its policy: that of `app.bulk`, with more retries."""
    words = {"timeout": "20s", "retries": _RETRIES, "backoff": "0.1s..0.3s", "overlap": "queue"}
    return Policy.of("bulk", effects="fenced", chunk=None if work is None else work.chunk, **words)


def load_rules() -> dict[str, JobRules]:
    """Return what is promised of the job and of its parts."""
    made = policy()
    pauses_s = tuple(made.backoff.delay_s(failures + 1, 0.0) for failures in range(made.retries))
    return dict.fromkeys((LOAD, PART), JobRules(str(made.overlap), made.retries, pauses_s))


def declare_load(stage: BulkHost, work: BulkWork, floor: JobSite, target: Any) -> None:
    """Declare the job in one process; `target` is what it reads from and writes to, None for the ledger's database."""
    options = {
        "partitions": work.partitions,
        "over": work.over,
        "skip_limit": work.skip_limit,
        "read_ahead": work.read_ahead,
        "retry_backoff": "0.05s..0.2s",
        "target": target,
    }
    declare_bulk(
        cast("App", stage),
        load_class(work, floor),
        (every(f"{LOAD_EVERY_S}s"),) if work.is_scheduled else (),
        name=LOAD,
        params=params_of(work, "") if work.is_scheduled else None,
        parts={"read": None, "process": None, "writer": None},
        words=options,
        policy=policy(work),
    )


def load_class(work: BulkWork, floor: JobSite) -> type:
    """Return the job as a user would write it."""

    class Load:
        read = _READ[work.is_settling]

        def __init__(self, batch: str, most: int) -> None:
            self.batch = batch
            self.most = most
            self._run: Run | None = None

        def before(self, run: Run) -> None:
            self._run = run  # for partitions on threads that are not the run's own

        def process(self, row: Any) -> int | None:
            floor.sleep(work.pace_s * 2 * floor.draw())
            if row.id in work.unprocessable:
                raise Skip(f"{row.id} cannot be processed")
            if floor.draw() < _AGAIN:
                raise Retry(reason="not now")
            return None if row.id in work.filtered else row.id

        def write(self, tx: Any, keys: Sequence[int]) -> None:
            run = current_run() or self._run
            assert run is not None
            resource = f"{self._resource(run)}/{run.exclusive_key or run.id}"
            for key in keys:
                floor.offer(run, resource=resource, key=str(key))
            rows = [(resource, str(key), _token(work, run, key), attempt_of(run).grant_id, run.id) for key in keys]
            tx.exec_driver_sql(_INSERT, rows)
            if work.is_settling:
                tx.exec_driver_sql(_SETTLE, [(key,) for key in keys])

        def _resource(self, run: Run) -> str:
            return resource_of(self.batch, round(run.window.end.timestamp() * 1e6))

    return Load


def _token(work: BulkWork, run: Run, key: int) -> int:
    """Return the token to write under; for what cannot be written, one that the database refuses."""
    return -1 if key in work.unwritable else run.token


def resource_of(batch: str, window_us: int | None) -> str:
    """Name the work by its request, or by its window."""
    return f"bulk:{batch}" if batch else f"bulk:@{window_us}"


# -- what became of it -------------------------------------------------------------------------------------------------


def bulk_evidence(
    work: BulkWork, ledger: sqlite3.Connection, target: sqlite3.Connection, *, quiet_us: int
) -> list[dict[str, Any]]:
    """Return what the checker of bulk work needs, for each instance.

    What was made before `quiet_us` has had the time to end.
    """
    works = _works(ledger, quiet_us)
    by_run = {run_id: resource for resource, runs in works.items() for run_id in runs}
    letters = _letters(target, by_run)
    counted, planned = _counts(target, by_run)
    lost = work.unprocessable | work.unwritable
    return [
        {
            "resource": resource,
            "input": [str(key) for key in work.keys],
            "filtered": [str(key) for key in work.keys if key in work.filtered and key not in lost],
            "skipped": letters[resource],
            "skippable": [str(key) for key in lost],
            "run": min(runs),
            "finished": any(state == "succeeded" for state, _ in runs.values()) or bool(planned[resource]),
            "given_up": [] if work.is_hopeless else [run_id for run_id, (state, _) in runs.items() if state == "dead"],
            "left": [run_id for run_id, (state, _) in runs.items() if state in _OPEN],
            "counts": dict(counted[resource]),
            "totals": [json.loads(result) for state, result in runs.values() if state == "succeeded" and result]
            + planned[resource],
        }
        for resource, runs in works.items()
    ]


def _works(ledger: sqlite3.Connection, quiet_us: int) -> dict[str, dict[int, tuple[str, str | None]]]:
    """Return the runs of each instance, with its parts and late ones marked as such."""
    found: dict[str, dict[int, tuple[str, str | None]]] = defaultdict(dict)
    for run_id, job, state, params, window_us, made_us, result in ledger.execute(_RUNS, (LOAD, PART)):
        given = json.loads(params)
        values = given["values"] if job == PART else given
        is_late = state in _OPEN and made_us > quiet_us
        seen = PART if job == PART else "late" if is_late else state
        found[resource_of(values["batch"], window_us)][run_id] = (seen, result)
    return found


def _letters(target: sqlite3.Connection, by_run: dict[int, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for item_key, run_id in target.execute(_LETTERS):
        found[by_run.get(run_id, "nobody's")].append(item_key.removeprefix("id="))
    return found


def _counts(
    target: sqlite3.Connection, by_run: dict[int, str]
) -> tuple[dict[str, Counter[str]], dict[str, list[dict[str, int]]]]:
    """Return the counts beside the checkpoints of partitions, summed, and those of plans that are done."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    planned: dict[str, list[dict[str, int]]] = defaultdict(list)
    for mark, counts in _marks(target):
        resource = by_run.get(mark["run"], "nobody's")
        if "slices" not in mark:
            counted[resource].update(counts)
        elif mark["done"]:
            planned[resource].append(counts)
    return counted, planned


def _marks(target: sqlite3.Connection) -> Iterator[tuple[dict[str, Any], dict[str, int]]]:
    for position, counts in target.execute(_MARKS, (f"bulk:{LOAD}@%",)):
        yield json.loads(position), json.loads(counts)
