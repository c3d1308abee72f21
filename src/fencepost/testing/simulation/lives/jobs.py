"""The jobs of lives: what comes due, what is asked for, what takes long, and bulk work in a database that is shared.

Effects are named after what was requested (a due time, an order, a batch), never after a run: so it is seen when
it is done once more, by a repetition, after everything about the first time was removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import Engine

from fencepost.app.bulk import declare_bulk
from fencepost.bulk import keyset
from fencepost.core.policy import Policy
from fencepost.core.schedule import Schedule
from fencepost.core.schedules.cron import cron
from fencepost.core.schedules.every import every
from fencepost.engine.jobs import Job
from fencepost.engine.run import Run, current_run
from fencepost.testing.simulation.bulk import BulkHost
from fencepost.testing.simulation.jobs import JobSite, work_key
from fencepost.testing.simulation.lives.plan import ZONE, LifeJob

MINUTE, HOUR, WEEKDAY = 17, 12, 1  # of what is due once a week by the clocks of a zone: Mondays
LONG_S = 20  # steps of a second, with a check after each: long enough for several restarts to interrupt it
LAPSES_D = 4  # after so many days a key that is offered all the time counts as new
_READ = keyset("SELECT id FROM sim_input WHERE id > :after ORDER BY id LIMIT :limit", key="id")
_INSERT = "INSERT INTO sim_effect (resource, key, token, grant_id, run_id) VALUES (?, ?, ?, ?, ?)"
_FAILS = {"tick": 0.15, "ask": 0.45, "load": 0.12}  # shares of attempts; people repeat these, as there are no retries


@dataclass(slots=True)
class Offer:
    """A key with a time was offered: when, of which program, and what came of it. `is_new` is None until that is known.

    `is_certain` is whether the transaction is known to have committed, by `until_us`.
    """

    at_us: int
    program: str
    is_new: bool | None = None
    is_certain: bool = False
    until_us: int = 0


@dataclass(slots=True)
class Works:
    """What the jobs of one process use.

    `under_way` are the runs whose functions have not returned; `failures` says how often each run was made to fail.
    `offers` are those of keys that expire, of all processes on the ledger, and `now_us` is the ledger's clock.
    """

    program: str
    floor: JobSite
    far: Engine
    failures: Counter[int]
    offers: list[Offer]
    now_us: Callable[[], int]
    under_way: set[int] = field(default_factory=set)

    def fail_now_and_then(self, run: Run, kind: str) -> None:
        """Raise, as often as jobs of this kind do."""
        if self.floor.draw() < _FAILS[kind]:
            self.failures[run.id] += 1
            raise RuntimeError("it went wrong, as it should")


def policy_of(job: LifeJob) -> Policy:
    """Return how a job is run."""
    words: dict[str, Any] = {"timeout": "30d", "retries": 0, "queue": job.queue, "effects": "fenced"}
    if job.kind == "tick":
        return Policy.of("scheduled", **words, misfire=job.misfire, overlap=job.overlap)
    if job.kind == "load":
        return Policy.of("bulk", **words, chunk=2, overlap="queue")
    return Policy.of("manual", **words)


def schedules_of(job: LifeJob) -> tuple[Schedule, ...]:
    """Return when a job is due."""
    if job.is_zoned:
        return (cron(f"{MINUTE} {HOUR} * * {WEEKDAY}", tz=ZONE),)
    return (every(f"{job.every_d}d"),) if job.every_d else ()


def declared(job: LifeJob, works: Works) -> Job:
    """Return a job of one process; not for bulk work."""
    return replace(_read_once(job), function=_MADE[job.kind](works))


@lru_cache(maxsize=512)
def _read_once(job: LifeJob) -> Job:
    nowhere = cast("Works", None)
    return Job.of(_MADE[job.kind](nowhere), name=job.name, policy=policy_of(job), schedules=schedules_of(job))


def _tick(works: Works) -> Callable[..., Any]:
    def tick(run: Run) -> None:
        works.floor.begin(run)
        works.under_way.add(run.id)
        try:
            works.floor.sleep(works.floor.draw() * 0.4)
            key = f"{works.program}:{work_key(run)}"
            _write(works, run, resource=f"due:{key}", key=key)
            works.floor.sleep(works.floor.draw() * 0.4)
            _write(works, run, resource=f"due, second part:{key}", key=key)
            _offer(works, run)
            works.fail_now_and_then(run, "tick")
        finally:
            works.under_way.discard(run.id)
        works.floor.end(run)

    return tick


def _write(works: Works, run: Run, *, resource: str, key: str) -> None:
    """Write to the database that all programs share, once for each key."""
    with run.transaction(works.far) as tx:
        if run.once(f"{resource}:{key}", tx):
            tx.exec_driver_sql(_INSERT, (resource, key, run.token, run.fencing.grant_id, run.id))


def _offer(works: Works, run: Run) -> None:
    """Do work that is due once in some days, for any caller: in the ledger's database, where old keys are removed."""
    offer = Offer(works.now_us(), works.program)
    works.offers.append(offer)
    with run.transaction() as tx:
        offer.is_new = run.once(f"now and then:{works.program}", tx, expires=f"{LAPSES_D}d")
    offer.is_certain, offer.until_us = True, works.now_us()


def _ask(works: Works) -> Callable[..., Any]:
    def ask(run: Run, order: str) -> None:
        works.floor.begin(run)
        works.under_way.add(run.id)
        try:
            works.floor.sleep(works.floor.draw() * 0.5)
            works.fail_now_and_then(run, "ask")
            with run.transaction(final=True) as tx:
                tx.exec_driver_sql(_INSERT, (f"order:{order}", order, run.token, run.fencing.grant_id, run.id))
        finally:
            works.under_way.discard(run.id)
        works.floor.end(run)

    return ask


def _long(works: Works) -> Callable[..., Any]:
    def long(run: Run, order: str) -> None:  # noqa: ARG001 - by it two requests differ
        works.floor.begin(run)
        works.under_way.add(run.id)
        try:
            for _ in range(LONG_S):
                works.floor.sleep(1.0)
                run.check()
        finally:
            works.under_way.discard(run.id)
        works.floor.end(run)

    return long


_MADE: dict[str, Callable[[Works], Callable[..., Any]]] = {"tick": _tick, "ask": _ask, "long": _long}


def declare_load(stage: BulkHost, job: LifeJob, works: Works) -> None:
    """Declare the bulk job of one process."""
    declare_bulk(
        cast("Any", stage),
        _load_class(works),
        (),
        name=job.name,
        params=None,
        parts={"read": None, "process": None, "writer": None},
        words={"target": works.far, "retry_backoff": "0.05s..0.2s"},
        policy=policy_of(job),
    )


def _load_class(works: Works) -> type:
    class Load:
        read = _READ

        def __init__(self, batch: str) -> None:
            self.batch = batch

        def process(self, row: Any) -> int:
            run = current_run()
            assert run is not None
            works.under_way.add(run.id)
            try:
                works.floor.sleep(0.05)
                works.fail_now_and_then(run, "load")
            finally:
                works.under_way.discard(run.id)
            return int(row.id)

        def write(self, tx: Any, keys: list[int]) -> None:
            run = current_run()
            assert run is not None
            grant = run.fencing.grant_id
            rows = [(f"batch:{self.batch}", str(key), run.token, grant, run.id) for key in keys]
            tx.exec_driver_sql(_INSERT, rows)

    return Load
