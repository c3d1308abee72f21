"""Bulk work to be cut: jobs in chunks and partitions, and a recount of what became of their input.

Everything is known beforehand: four items, of which one is left out, one cannot be processed and one is refused by the
database, which is found by dividing its chunk. The recount reads the tables alone, and asks nothing of the code that
did the work.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import text

from fencepost.app.bulk import declare_bulk
from fencepost.app.operations import Operations
from fencepost.bulk import keyset
from fencepost.core.policy import Policy
from fencepost.core.rights import Scope
from fencepost.core.verdicts import Skip
from fencepost.engine.jobs import Jobs
from fencepost.engine.known_secrets import SecretSource, known_secret
from fencepost.engine.run import Run, attempt_of, current_run
from fencepost.errors import FencepostError
from fencepost.ledger.ledger import Ledger
from tests.crashpoints.grounds import EFFECTS, INPUT, KEYS, PREFIX, engine

if TYPE_CHECKING:
    from tests.crashpoints.world import World

CHUNKED, DIVIDED = "chunked", "divided"  # one partition, two of them
NEAR, FAR = "", "_far"  # in the ledger's database, in another one
PART = "/part"
NAMES = tuple(name + where for name in (CHUNKED, DIVIDED) for where in (NEAR, FAR))
FILTERED, UNPROCESSABLE, UNWRITABLE = 2, 3, 5
_ROWS = keyset(f"SELECT id FROM {INPUT} WHERE id <= :most AND id > :after ORDER BY id LIMIT :limit", key="id")
_INSERT = text(
    f"INSERT INTO {EFFECTS} (resource, work, token, grant_id, run_id) VALUES (:resource, :work, :token, :grant, :run)"
)


def is_bulk(job: str) -> bool:
    """Whether a job is one of these, or the job of its parts."""
    return job.removesuffix(PART) in NAMES


@dataclass(frozen=True, slots=True)
class Stage:
    """What declaring a bulk job asks of an application."""

    jobs: Jobs
    ledger_of: Callable[[], Ledger]
    generation: int = 0
    secrets: SecretSource = known_secret

    @property
    def settings(self) -> Stage:
        return self

    @property
    def ledger(self) -> Ledger:
        return self.ledger_of()

    @property
    def operations(self) -> Operations:
        return Operations(self.ledger, Scope.direct())

    def wake(self) -> None:
        """Nobody sleeps."""


def declare(world: World) -> None:
    """Declare the jobs of one play."""
    stage = Stage(world.jobs, lambda: world.ledger)
    for where, target in ((NEAR, None), (FAR, world.elsewhere)):
        for name, partitions in ((CHUNKED, 1), (DIVIDED, 2)):
            declare_bulk(
                cast("Any", stage),
                _load(),
                (),
                name=name + where,
                params=None,
                parts={"read": None, "process": None, "writer": None},
                words={"partitions": partitions, "skip_limit": 2, "read_ahead": 0, "target": target},
                policy=Policy.of(
                    "bulk", chunk=2, retries=50, backoff={"base": 0, "cap": 0}, effects="fenced", overlap="queue"
                ),
            )


def _load() -> type:
    class Load:
        read = _ROWS

        def __init__(self, batch: str, most: int, stumbles: bool = False) -> None:
            self.batch = batch
            self.most = most
            self.stumbles = stumbles

        def process(self, row: Any) -> int | None:
            run = current_run()
            assert run is not None
            if self.stumbles and run.attempt == 1 and not run.job.endswith(PART) and row.id == KEYS[1]:
                raise FencepostError("it stumbles in the middle, as it is told to")
            if row.id == UNPROCESSABLE:
                raise Skip("it cannot be processed")
            return None if row.id == FILTERED else row.id

        def write(self, tx: Any, keys: Sequence[int]) -> None:
            run = current_run()
            assert run is not None
            tx.execute(_INSERT, [_effect(run, self.batch, key) for key in keys])

    return Load


def _effect(run: Run, batch: str, key: int) -> dict[str, Any]:
    """Return the row of an item; the one that cannot be written has no token."""
    token = None if key == UNWRITABLE else run.token
    return {
        "resource": f"bulk:{batch}/{run.exclusive_key or run.id}",
        "work": str(key),
        "token": token,
        "grant": attempt_of(run).grant_id,
        "run": run.id,
    }


# -- recounting --------------------------------------------------------------------------------------------------------


def told(world: World) -> list[dict[str, Any]]:
    """Return what the checker of bulk work is to be told."""
    runs: dict[str, dict[int, Any]] = defaultdict(dict)
    for run_id, job, state, params, result in world.rows(
        "SELECT r.id, r.job, r.state, r.params, r.result FROM {run} r ORDER BY r.id"
    ):
        if is_bulk(job):
            given = json.loads(params)
            values = given["values"] if job.endswith(PART) else given
            runs[values["batch"]][run_id] = (job, state, values["most"], result)
    return [_recounted(world, batch, of_batch) for batch, of_batch in runs.items()]


def _recounted(world: World, batch: str, runs: dict[int, Any]) -> dict[str, Any]:
    job, _, most, _ = next(iter(runs.values()))
    url = world.ground.elsewhere if job.removesuffix(PART).endswith(FAR) else world.ground.url
    keys = [key for key in KEYS if key <= most]
    marks, letters = _marks(url, runs), _letters(url, runs)
    counts: Counter[str] = Counter()
    for mark, counted in marks:
        counts.update({} if "slices" in mark else counted)
    planned = [counted for mark, counted in marks if "slices" in mark and mark["done"]]
    results = [
        json.loads(result)
        for job, state, _, result in runs.values()
        if state == "succeeded" and not job.endswith(PART) and result
    ]
    return {
        "resource": f"bulk:{batch}",
        "input": list(map(str, keys)),
        "filtered": [str(key) for key in keys if key == FILTERED],
        "skipped": letters,
        "skippable": [str(UNPROCESSABLE), str(UNWRITABLE)],
        "run": min(runs),
        "finished": bool(planned or results),
        "counts": dict(counts),
        "totals": planned + results,
        "given_up": [run_id for run_id, (_, state, _, _) in runs.items() if state == "dead"],
    }


def _marks(url: str, runs: dict[int, Any]) -> list[tuple[dict[str, Any], dict[str, int]]]:
    query = text(f"SELECT position, counts FROM {PREFIX}checkpoint WHERE name LIKE 'bulk:%'")
    with engine(url).connect() as connection:
        read = [(json.loads(position), json.loads(counts)) for position, counts in connection.execute(query)]
    return [each for each in read if each[0]["run"] in runs]


def _letters(url: str, runs: dict[int, Any]) -> list[str]:
    query = text(f"SELECT item_key, run_id FROM {PREFIX}dead_letter ORDER BY id")
    with engine(url).connect() as connection:
        return [key.removeprefix("id=") for key, run_id in connection.execute(query) if run_id in runs]
