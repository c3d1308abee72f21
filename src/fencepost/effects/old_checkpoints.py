"""Removes the checkpoints of bulk work that was completed long ago.

::

    bulk:<job>@<instance>/<step>       a plan: "slices", whether it is "done", by which "run"; the plan of the first
                                       step also records when the whole work is "complete"
    bulk:<job>@<instance>/<step>#<n>   a partition of it

The ledger's name precedes the instance (`fencepost.ledger.naming`), unless an older version wrote the row.
*Work* is what a job does once, its instance: a window with its parameters, or one request with its repetitions.

**Promises.** Rows are removed only if their work is complete, none of them was updated since, and no unfinished run
belongs to the work. A plan is removed after its partitions, and the plan that marks the whole work as complete is
removed last. So a concurrent repetition of the work is refused by it, or finds no rows at all. If pruning is
interrupted, the next one removes the rest.

**What is lost.** A repetition of that work is no longer refused: it does all the work again.

Steps may write to other databases than the first step, where no row marks the whole work as complete. There, the work
counts as complete if the run that ended the step has succeeded and is still in the ledger.

**Not promised.** Anything about rows that do not name their ledger, if another ledger with a job of the same name wrote
them. Rows that name another ledger are not removed, nor are those of jobs that the ledger does not know, nor those of
work whose name is so long (a job name of about 75 characters) that its rows cannot be recognized.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.core.duration import spelled, whole_us
from fencepost.core.identity import LONGEST_KEY
from fencepost.effects.installing import tables_of
from fencepost.effects.pruning import BATCH, LEAST_AGE_S, need_tables
from fencepost.effects.walking import remove, walk
from fencepost.errors import ConfigurationError, NoSuchRun
from fencepost.ledger import history
from fencepost.ledger.history import RunFilter, RunRow
from fencepost.ledger.identity import identity
from fencepost.ledger.jobs import jobs
from fencepost.ledger.naming import ledger_in, short, without_ledger
from fencepost.ledger.renaming import formers

if TYPE_CHECKING:
    from fencepost.ledger.database import Database

_FIRST, _END = "bulk:", "bulk;"  # in the order of bytes, all names of bulk work are between them
_NAME = re.compile(r"bulk:([^@]+)@([^/]+)/")
_LONGEST_WHOLE = LONGEST_KEY - 65  # the length that is kept of a name that is too long; a hash replaces the rest
_LIVE = ("queued", "running", "waiting")
_PART = "/part"
_PAGE = 500  # runs in one query; pages are read until none is left


class Work(NamedTuple):
    """What a bulk job does once."""

    job: str
    instance: str


class Removed(NamedTuple):
    """How many checkpoints of how many works were removed, and how many equally old ones were kept."""

    checkpoints: int
    works: int
    kept: int


@dataclass(frozen=True, slots=True)
class _Row:
    """A checkpoint. `plan` is its content if it is the row of a plan."""

    name: str
    updated_at: int
    plan: dict[str, Any] | None

    @property
    def rank(self) -> int:
        """The order of removal: partitions first, then plans, and the plan of the first step last."""
        return 0 if self.plan is None else 2 if self.is_last_word else 1

    @property
    def is_last_word(self) -> bool:
        """Whether it marks the whole work as complete."""
        return self.plan is not None and self.plan.get("complete") is not None


class BulkRuns:
    """A ledger's runs of bulk jobs; each job is queried once. `name` returns the instance that a run belongs to."""

    def __init__(self, ledger: Database, name: Callable[[Database, RunRow], str]) -> None:
        self._ledger = ledger
        self._name = name
        self._names: dict[str, set[str]] = {}  # by the first name of a job, which checkpoints use
        for row in jobs(ledger):
            names = (*formers(row.policy), row.name)
            self._names.setdefault(names[0], set()).update(names)
        self._identity = short(identity(ledger))
        self._live = cache(self._instances)

    def knows(self, work: Work) -> bool:
        """Whether the ledger has the job, and the name of the work does not name another ledger."""
        return work.job in self._names and ledger_in(work.instance) in ("", self._identity)

    def stand_for(self, work: Work) -> bool:
        """Whether an unfinished run belongs to this work, or does a part of it."""
        return without_ledger(work.instance) in self._live(work.job)

    def has_succeeded(self, job: str, run_id: object) -> bool:
        """Whether the ledger has a record that a run of the job succeeded."""
        if not isinstance(run_id, int):
            return False
        try:
            row = history.run(self._ledger, run_id)
        except NoSuchRun:
            return False
        return row.state == "succeeded" and row.job in self._names.get(job, {job})

    def _instances(self, job: str) -> frozenset[str]:
        names = sorted(self._names.get(job, {job}))
        conducted = [self._name(self._ledger, row) for name in names for row in self._unended(name)]
        parts = [json.loads(row.params).get("instance", "") for name in names for row in self._unended(name + _PART)]
        return frozenset(conducted + [without_ledger(label) for label in parts])

    def _unended(self, job: str) -> Iterator[RunRow]:
        last, wanted = 0, RunFilter(job=job, states=_LIVE)
        while page := history.runs(self._ledger, wanted, after_id=last, limit=_PAGE, waits_for_anything=True):
            yield from page
            last = page[-1].id


def prune_checkpoints(
    database: Database, runs: BulkRuns, *, older_than_s: float, batch: int = BATCH, dry_run: bool = False
) -> Removed:
    """Remove the checkpoints of work that was completed longer ago than that."""
    need_tables(database)
    if older_than_s < LEAST_AGE_S:
        raise ConfigurationError(
            f"--older-than {spelled(older_than_s)} is too short: work that was completed within the last day may be "
            f"requested again by mistake; the minimum is {spelled(LEAST_AGE_S)}"
        )
    search = _Search(runs, database.now_us() - whole_us(older_than_s))
    going = search.names(_rows(database, batch))
    if dry_run:
        return Removed(sum(1 for _ in going), search.works, search.kept)
    c = tables_of(database).checkpoint.c
    removed = remove(database, c.name, going, still=c.updated_at < search.before_us, batch=batch)
    return Removed(removed, search.works, search.kept)


class _Search:
    """Finds the checkpoints that may be removed, and counts them."""

    def __init__(self, runs: BulkRuns, before_us: int) -> None:
        self._runs = runs
        self.before_us = before_us
        self.works = 0
        self.kept = 0

    def names(self, rows: Iterator[_Row]) -> Iterator[str]:
        """Yield the names of rows that may be removed, in order of removal. Rows of the same work must be adjacent."""
        for work, group in groupby(rows, key=_work_of):
            found = list(group)
            if any(row.updated_at >= self.before_us for row in found):
                continue
            if work is None or not self._may_go(work, found):
                self.kept += len(found)
                continue
            self.works += 1
            yield from (row.name for row in sorted(found, key=lambda row: row.rank))

    def _may_go(self, work: Work, found: Sequence[_Row]) -> bool:
        is_known = self._runs.knows(work)
        return is_known and self._is_complete(work, found) and not self._runs.stand_for(work)

    def _is_complete(self, work: Work, found: Sequence[_Row]) -> bool:
        if any(row.is_last_word for row in found):
            return True
        plans = [row.plan for row in found if row.plan is not None]
        are_done = all(plan.get("done") is True for plan in plans)
        return are_done and any(self._runs.has_succeeded(work.job, plan.get("run")) for plan in plans)


def _work_of(row: _Row) -> Work | None:
    found = _NAME.match(row.name)
    return Work(*found.groups()) if found and found.end() <= _LONGEST_WHOLE else None


def _rows(database: Database, page: int) -> Iterator[_Row]:
    c = tables_of(database).checkpoint.c
    columns = (c.name, c.updated_at, c.position)
    for name, updated_at, position in walk(database, columns, after=_FIRST, upto=_END, page=page):
        yield _Row(name, updated_at, _plan(position))


def _plan(position: str) -> dict[str, Any] | None:
    """Return the content of a plan's row; None for any other row."""
    if '"slices"' not in position:
        return None
    try:
        content = json.loads(position)
    except ValueError:  # not ours
        return None
    return content if isinstance(content, dict) and "slices" in content else None
