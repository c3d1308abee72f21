"""Shows and deletes the checkpoints of an instance in the databases of its effects. Without them it starts over.

**Forgetting** deletes the checkpoints of a step, those of its plan and its partitions, in one transaction. So there is
never a plan without its partitions, or a partition without its plan. The last step is deleted first. If the steps are
in several databases and this is interrupted, the first steps remain: a run can continue from them, or the next call
deletes them.

**Not promised.** That effects are undone. What has landed stays, and the next run reads the whole input again.
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.bulk.checkpoint import (
    Checkpoint,
    Counts,
    StoredCheckpoint,
    kept_at,
    partition_name,
    plan_name,
    total_counts,
)
from fencepost.bulk.instance import instance_name
from fencepost.bulk.labels import PART, label_of
from fencepost.bulk.places import target_beside
from fencepost.bulk.plan import complete_by
from fencepost.bulk.visits import visiting, visitor
from fencepost.core.identity import fitted
from fencepost.fence.effect_statements import EffectStatements
from fencepost.ledger import history
from fencepost.ledger.history import RunFilter, RunRow
from fencepost.ledger.naming import without_ledger

if TYPE_CHECKING:
    from fencepost.bulk.definition import Bulk, Step
    from fencepost.fence.writer import Writer
    from fencepost.ledger.ledger import Ledger

_LIVE = ("queued", "running", "waiting")
_BATCH = 500  # parameters per statement stay below every driver's limit


@dataclass(frozen=True, slots=True)
class StepSeen:
    """A step as its checkpoints show it. `plan` is None if it has not begun."""

    name: str
    shape: str
    plan: StoredCheckpoint | None
    partitions: Sequence[StoredCheckpoint | None] = ()

    @property
    def slices(self) -> Sequence[Mapping[str, Any]]:
        """The slices of its partitions."""
        return () if self.plan is None else self.plan.mark.more.get("slices", ())

    @property
    def done_by(self) -> int | None:
        """The run that completed it."""
        return None if self.plan is None or not self.plan.mark.is_done else self.plan.mark.run

    @property
    def is_of_other_code(self) -> bool:
        """Whether the code has changed since, so that it cannot be continued."""
        seen = (self.plan, *self.partitions)
        return any(each is not None and each.shape != self.shape for each in seen)

    @property
    def done(self) -> int:
        """How many partitions are done."""
        return sum(each is not None and each.mark.is_done for each in self.partitions)

    @property
    def counts(self) -> Counts:
        """The counts of its items so far."""
        return total_counts(self.partitions)


def see(bulk: Bulk, instance: str, ledger: Ledger) -> list[StepSeen]:
    """Return the state of each step of an instance, in their order."""
    writer, label = visitor(ledger), _label(bulk, instance, ledger)
    return [_see(bulk.job, label, step, target_beside(step, ledger), writer) for step in bulk.steps]


def _label(bulk: Bulk, instance: str, ledger: Ledger) -> str:
    """Return the name of an instance in its checkpoints' names."""
    writer = visitor(ledger)

    def look(label: str) -> Iterator[StoredCheckpoint]:
        for step in bulk.steps:
            with visiting(target_beside(step, ledger)) as tx:
                kept = Checkpoint(plan_name(bulk.job, label, step.name), None, writer).read(tx)
            if kept is not None:
                yield kept

    return label_of(ledger, bulk.job, instance, look)


def _see(job: str, instance: str, step: Step, target: Any, writer: Writer) -> StepSeen:
    shape = "work" if step.read is None else step.read.shape
    with visiting(target) as tx:
        plan = Checkpoint(plan_name(job, instance, step.name), None, writer).read(tx)
        count = 0 if plan is None else len(plan.mark.more.get("slices", ()))
        names = [partition_name(job, instance, step.name, number) for number in range(count)]
        partitions = kept_at(tx, names, writer)
    return StepSeen(step.name, shape, plan, partitions)


def completed_by(steps: Sequence[StepSeen]) -> int | None:
    """Return the run that completed an instance, from the plan of its first step; None if it is not complete."""
    plan = steps[0].plan
    return None if plan is None else complete_by(plan.mark)


def forget(bulk: Bulk, instance: str, ledger: Ledger) -> int:
    """Delete all checkpoints of an instance; return their number. The caller checks that none of its runs is live."""
    writer, label = visitor(ledger), _label(bulk, instance, ledger)
    return sum(_forget(bulk.job, label, step, target_beside(step, ledger), writer) for step in reversed(bulk.steps))


def _forget(job: str, instance: str, step: Step, target: Any, writer: Writer) -> int:
    plan_row = plan_name(job, instance, step.name)
    with visiting(target) as tx:
        plan = Checkpoint(plan_row, None, writer).read(tx)
        count = 0 if plan is None else len(plan.mark.more.get("slices", ()))
        names = [partition_name(job, instance, step.name, number) for number in range(count)]
        return _deleted(EffectStatements(tx, writer), [fitted(name) for name in (*names, plan_row)])


def _deleted(landing: EffectStatements, names: Sequence[str]) -> int:
    total = 0
    for start in range(0, len(names), _BATCH):
        some = names[start : start + _BATCH]
        marks = ", ".join(["%s"] * len(some))
        total += landing.execute(f"DELETE FROM {landing.table('checkpoint')} WHERE name IN ({marks})", some).count
    return total


def live_runs(ledger: Ledger, names: Iterable[str], instance: str) -> list[int]:
    """Return the runs of an instance that have not ended; `names` are those of the job and of its parts."""
    rows = [row for name in names for row in _live(ledger, name)]
    conducting = [row for row in rows if not row.job.endswith(PART)]
    stood_for = ((row.id, json.loads(row.params).get("instance", "")) for row in rows if row.job.endswith(PART))
    return [row.id for row in conducting if instance_name(ledger, row) == instance] + [
        run_id for run_id, label in stood_for if without_ledger(label) == instance
    ]


def _live(ledger: Ledger, job: str) -> Iterator[RunRow]:
    after, wanted = 0, RunFilter(job=job, states=_LIVE)
    while page := history.runs(ledger, wanted, after_id=after, limit=_BATCH, waits_for_anything=True):
        yield from page
        after = page[-1].id
